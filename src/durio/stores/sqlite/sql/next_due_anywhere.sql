select min((select min(run_at) from job where state = 0 and queue = queue.name))
from queue
