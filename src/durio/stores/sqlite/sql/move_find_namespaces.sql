select distinct substr(name, 1, instr(name, ':') - 1) from queue order by 1
