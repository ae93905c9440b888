select at, namespace, who, verb, target, jobs from audit order by seq
