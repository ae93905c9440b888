select count(*) from tally
