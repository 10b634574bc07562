-- +goose Up
-- What a directory that provisions by SCIM may give: one row, or none.
CREATE TABLE scim_settings (
    id         {{int}} NOT NULL PRIMARY KEY,
    settings   {{text}} NOT NULL,
    version    {{int}} NOT NULL,
    updated_at {{int}} NOT NULL
){{strict}};

-- What a directory says about people beyond their record.
CREATE TABLE scim_people (
    user_id     {{text}} NOT NULL PRIMARY KEY,
    external_id {{text}} NOT NULL,
    profile     {{text}} NOT NULL,
    updated_at  {{int}} NOT NULL
){{strict}};
CREATE INDEX scim_people_by_external_id ON scim_people (external_id);

CREATE TABLE scim_groups (
    id          {{text}} NOT NULL PRIMARY KEY,
    name        {{text}} NOT NULL,
    folded      {{text}} NOT NULL,
    external_id {{text}} NOT NULL,
    created_at  {{int}} NOT NULL,
    updated_at  {{int}} NOT NULL
){{strict}};
CREATE UNIQUE INDEX scim_groups_by_name ON scim_groups (folded);

CREATE TABLE scim_members (
    group_id {{text}} NOT NULL,
    user_id  {{text}} NOT NULL,
    PRIMARY KEY (group_id, user_id)
){{strict}};
CREATE INDEX scim_members_by_user ON scim_members (user_id);

-- The directories that may provision, each with a key of its own.
CREATE TABLE scim_tokens (
    id         {{text}} NOT NULL PRIMARY KEY,
    name       {{text}} NOT NULL,
    created_by {{text}} NOT NULL,
    created_at {{int}} NOT NULL
){{strict}};

-- +goose Down
DROP TABLE scim_tokens;
DROP TABLE scim_members;
DROP TABLE scim_groups;
DROP TABLE scim_people;
DROP TABLE scim_settings;
