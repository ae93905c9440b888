"""Plans: chains, groups and chords of signatures, and the values that their tasks get."""

from durio.client.plan import Immutable as Immutable
from durio.client.plan import ImmutablePlan as ImmutablePlan
from durio.client.plan import NamedSignature as NamedSignature
from durio.client.plan import Partial as Partial
from durio.client.plan import PartialPlan as PartialPlan
from durio.client.plan import Plan as Plan
from durio.client.plan import Signature as Signature
from durio.client.plan import chain as chain
from durio.client.plan import chord as chord
from durio.client.plan import group as group
from durio.client.plan_job import PlanJob as PlanJob
from durio.client.plan_job import PlanStatus as PlanStatus
from durio.model.plan import Complete as Complete
from durio.model.plan import Following as Following
from durio.model.plan_ends import Collected as Collected
from durio.model.plan_ends import Err as Err
from durio.model.plan_ends import Ok as Ok
from durio.model.plan_ends import PlanFailure as PlanFailure
from durio.model.plan_record import PlanState as PlanState
from durio.model.plan_tree import PlanTree as PlanTree
