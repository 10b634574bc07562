-- +goose Up
-- Which resources each revision of an environment touched: whoever holds the
-- resources as of a revision brings them up to date by these rows alone.
CREATE TABLE resource_changes (
    environment {{text}} NOT NULL,
    revision    {{int}} NOT NULL,
    resource_id {{int}} NOT NULL,
    PRIMARY KEY (environment, revision, resource_id)
){{strict}};

-- Lists by type, and their totals, without reading the rows.
CREATE INDEX resources_by_type ON resources (type, environment, id);
-- The inventory's totals, likewise.
CREATE INDEX resources_inventory ON resources (environment, resource_kind, data_classification, classification_source, ai_provider, auto_discovered, classification_confidence, compliance_tags, id);
-- Whom bulk classification comes to next.
CREATE INDEX resources_to_classify ON resources (environment, COALESCE(last_classified_at, 0), id) WHERE classification_source IN ('', 'heuristic');

-- +goose Down
DROP INDEX resources_to_classify;
DROP INDEX resources_inventory;
DROP INDEX resources_by_type;
DROP TABLE resource_changes;
