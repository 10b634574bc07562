-- +goose Up
-- What the inventory and bulk classification count and order, each in an index
-- that holds little else. PostgreSQL takes no index entry of more than 2,700
-- bytes, and a resource may have more compliance tags than that, or a longer
-- name and path: the indexes that held them go.
DROP INDEX resources_inventory;
DROP INDEX resources_by_path;
-- Totals by kind, classification and tags. Long lists of tags are few; they are read from the rows.
CREATE INDEX resources_tally ON resources (environment, resource_kind, data_classification, compliance_tags) WHERE length(compliance_tags) <= 400;
CREATE INDEX resources_tally_long ON resources (environment, length(compliance_tags)) WHERE length(compliance_tags) > 400;
-- How many were classified by whom, and which of them a bouncer found.
CREATE INDEX resources_by_source ON resources (environment, classification_source, auto_discovered);
-- What lacks most comes first; the expression is that of internal/resource/store_inventory.go.
CREATE INDEX resources_lacking ON resources (environment, (CASE WHEN auto_discovered AND classification_source IN ('', 'heuristic') THEN 1 ELSE 0 END
	+ CASE WHEN resource_kind = '' THEN 1 ELSE 0 END
	+ CASE WHEN data_classification = '' THEN 1 ELSE 0 END
	+ CASE WHEN resource_kind IN ('llm_endpoint', 'agent') AND ai_provider = '' THEN 1 ELSE 0 END
	+ CASE WHEN classification_source = 'heuristic' AND classification_confidence < 0.6 THEN 1 ELSE 0 END) DESC, id);
-- A resource by its name, as a promotion and policies as code look for it.
CREATE INDEX resources_by_name ON resources (environment, name, type);
-- Which resources have an active control; SQLite reads no row where the columns of the condition are there too.
CREATE INDEX policies_guarding ON policies (environment, resource_id, status, deleted_at) WHERE status = 'active' AND deleted_at IS NULL AND resource_id IS NOT NULL;

-- +goose Down
DROP INDEX policies_guarding;
DROP INDEX resources_by_name;
DROP INDEX resources_lacking;
DROP INDEX resources_by_source;
DROP INDEX resources_tally_long;
DROP INDEX resources_tally;
CREATE INDEX resources_by_path ON resources (environment, path, type, name);
CREATE INDEX resources_inventory ON resources (environment, resource_kind, data_classification, classification_source, ai_provider, auto_discovered, classification_confidence, compliance_tags, id);
