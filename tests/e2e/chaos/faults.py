"""Every named fault, and the run without one."""

from tests.e2e.chaos.cell import Fault, nothing
from tests.e2e.chaos.judge import Wanted
from tests.e2e.chaos.kill_faults import KILL_FAULTS
from tests.e2e.chaos.machine_faults import MACHINE_FAULTS
from tests.e2e.chaos.process_faults import PROCESS_FAULTS

NONE = Fault("none", "no fault at all: no re-run", nothing, wanted=Wanted(faults_min=0))
FAULTS = [NONE, *KILL_FAULTS, *PROCESS_FAULTS, *MACHINE_FAULTS]
FAULT_BY_NAME = {fault.name: fault for fault in FAULTS}
