-- From here on these can neither renew nor claim: they may have lost a job already.
update {schema}.worker as w set rescued = true
where w.id = any(array(
  select l.id from {schema}.worker as l where l.id = any($1::int4[]) order by l.id for update
))
returning w.id
