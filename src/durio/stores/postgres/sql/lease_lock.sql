-- From here on it can neither renew nor claim: it may have lost a job already.
update {schema}.worker set rescued = true where id = $1::int4
returning id
