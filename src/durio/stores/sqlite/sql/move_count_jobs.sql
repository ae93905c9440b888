select substr(queue, 1, instr(queue, ':') - 1), state, count(*) from job group by 1, 2
