-- +goose Up
-- What resources were, so that a replay decides by the data that decided then. A
-- row is the state that a change ended: at revisions below until_revision the
-- resource was this (existed), or was not there. Today's state is in resources.
CREATE TABLE resource_past (
    environment               {{text}} NOT NULL,
    until_revision            {{int}} NOT NULL,
    id                        {{int}} NOT NULL,
    until_at                  {{int}} NOT NULL,
    existed                   {{bool}} NOT NULL,
    name                      {{text}} NOT NULL DEFAULT '',
    type                      {{text}} NOT NULL DEFAULT '',
    path                      {{text}} NOT NULL DEFAULT '',
    methods                   {{text}} NOT NULL DEFAULT '[]',
    original_host             {{text}} NOT NULL DEFAULT '',
    url                       {{text}} NOT NULL DEFAULT '',
    attributes                {{text}} NOT NULL DEFAULT '{}',
    description               {{text}} NOT NULL DEFAULT '',
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
    tags                      {{text}} NOT NULL DEFAULT '[]',
    PRIMARY KEY (id, until_revision)
){{strict}};
CREATE INDEX resource_past_by_revision ON resource_past (environment, until_revision);

-- The revision of an environment from which each version of a control holds
-- there; NULL where it makes no difference there, and for versions older than this.
ALTER TABLE policy_versions ADD COLUMN sandbox_revision {{int}};
ALTER TABLE policy_versions ADD COLUMN production_revision {{int}};

-- What each revision of a bouncer's bundle was made of: the environment's
-- revision, the resources that the bouncer stood before, and whether it refused
-- what no control covers.
CREATE TABLE bouncer_bundles_past (
    bouncer_id   {{int}} NOT NULL,
    environment  {{text}} NOT NULL,
    revision     {{int}} NOT NULL,
    env_revision {{int}} NOT NULL,
    published_at {{int}} NOT NULL,
    resources    {{text}} NOT NULL,
    denies       {{bool}} NOT NULL,
    PRIMARY KEY (bouncer_id, revision)
){{strict}};
CREATE INDEX bouncer_bundles_past_by_time ON bouncer_bundles_past (published_at);

-- From which revision on all this is known: an environment without a row here
-- began after it.
INSERT INTO revisions (name, value) SELECT 'past:' || name, value FROM revisions WHERE name IN ('env:sandbox', 'env:production');

-- +goose Down
DELETE FROM revisions WHERE name IN ('past:env:sandbox', 'past:env:production');
DROP TABLE bouncer_bundles_past;
ALTER TABLE policy_versions DROP COLUMN production_revision;
ALTER TABLE policy_versions DROP COLUMN sandbox_revision;
DROP TABLE resource_past;
