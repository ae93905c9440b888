-- Where a change by the dashboard came from, and what it changed: JSON, empty for most lines.

alter table audit add column details text not null default '';
