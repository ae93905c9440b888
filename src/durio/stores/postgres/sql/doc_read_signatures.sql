select name from {schema}.doc
where kind = $1::text and name >= $2::text and name < $3::text
