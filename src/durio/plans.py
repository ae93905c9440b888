"""Plans: chains, groups and chords of signatures, and the values that their tasks get."""

from durio.model.plan import Complete as Complete
from durio.model.plan import Following as Following
from durio.model.plan import Immutable as Immutable
from durio.model.plan import ImmutablePlan as ImmutablePlan
from durio.model.plan import NamedSignature as NamedSignature
from durio.model.plan import Partial as Partial
from durio.model.plan import Plan as Plan
from durio.model.plan import Signature as Signature
from durio.model.plan_build import chain as chain
from durio.model.plan_build import chord as chord
from durio.model.plan_build import group as group
from durio.model.plan_ends import Collected as Collected
from durio.model.plan_ends import Err as Err
from durio.model.plan_ends import Ok as Ok
from durio.model.plan_ends import PlanFailure as PlanFailure
