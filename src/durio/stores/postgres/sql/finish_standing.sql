-- How these jobs ended, if they have.
select h.id, h.claim_no, h.state, null::text from {schema}.hist as h
where h.id = any($1::uuid[])
union all
select k.id, k.claim_no, k.state, k.reason from {schema}.kept as k
where k.id = any($1::uuid[])
