-- +goose Up
-- Protected resources with their enrichment. Empty text and '[]' mean "not set":
-- unset members are absent from the engine's input (spec.md, enrichment fields).
CREATE TABLE resources (
    id                        {{id}},
    name                      {{text}} NOT NULL,
    type                      {{text}} NOT NULL,
    environment               {{text}} NOT NULL,
    path                      {{text}} NOT NULL,
    methods                   {{text}} NOT NULL DEFAULT '[]',
    original_host             {{text}} NOT NULL DEFAULT '',
    url                       {{text}} NOT NULL DEFAULT '',
    attributes                {{text}} NOT NULL DEFAULT '{}',
    description               {{text}} NOT NULL DEFAULT '',
    auto_discovered           {{bool}} NOT NULL,
    resource_kind             {{text}} NOT NULL DEFAULT '',
    data_classification       {{text}} NOT NULL DEFAULT '',
    compliance_tags           {{text}} NOT NULL DEFAULT '[]',
    audit_level               {{text}} NOT NULL DEFAULT '',
    sla_tier                  {{text}} NOT NULL DEFAULT '',
    data_residency            {{text}} NOT NULL DEFAULT '',
    owner_team                {{text}} NOT NULL DEFAULT '',
    owner_email               {{text}} NOT NULL DEFAULT '',
    business_context          {{text}} NOT NULL DEFAULT '',
    ai_provider               {{text}} NOT NULL DEFAULT '',
    ai_model_family           {{text}} NOT NULL DEFAULT '',
    mcp_protocol_version      {{text}} NOT NULL DEFAULT '',
    agent_capabilities        {{text}} NOT NULL DEFAULT '[]',
    pii_categories            {{text}} NOT NULL DEFAULT '[]',
    egress_destinations       {{text}} NOT NULL DEFAULT '[]',
    classification_source     {{text}} NOT NULL DEFAULT '',
    classification_confidence {{real}},
    last_classified_at        {{int}},
    tags                      {{text}} NOT NULL DEFAULT '[]',
    version                   {{int}} NOT NULL,
    created_at                {{int}} NOT NULL,
    updated_at                {{int}} NOT NULL
){{strict}};
CREATE INDEX resources_by_environment ON resources (environment, id);
CREATE INDEX resources_by_path ON resources (environment, path, type, name);

-- +goose Down
DROP TABLE resources;
