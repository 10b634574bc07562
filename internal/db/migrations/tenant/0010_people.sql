-- +goose Up
CREATE TABLE users (
    id            {{text}} NOT NULL PRIMARY KEY,
    email         {{text}} NOT NULL,
    username      {{text}} NOT NULL,
    password_hash {{text}} NOT NULL,
    roles         {{text}} NOT NULL DEFAULT '[]',
    department    {{text}} NOT NULL DEFAULT '',
    attributes    {{text}} NOT NULL DEFAULT '{}',
    status        {{text}} NOT NULL,
    created_at    {{int}} NOT NULL,
    updated_at    {{int}} NOT NULL,
    last_login_at {{int}}
){{strict}};
CREATE INDEX users_by_age ON users (created_at, id);

-- Every name that a person can sign in with, folded. One table for user names
-- and e-mail addresses, so that nobody's user name is another's address.
CREATE TABLE user_names (
    name    {{text}} NOT NULL PRIMARY KEY,
    user_id {{text}} NOT NULL
){{strict}};
CREATE INDEX user_names_by_user ON user_names (user_id);

-- What a session token stands on: the row gone, the token is void.
CREATE TABLE sessions (
    id          {{text}} NOT NULL PRIMARY KEY,
    user_id     {{text}} NOT NULL DEFAULT '',
    key_id      {{text}} NOT NULL DEFAULT '',
    root        {{text}} NOT NULL,
    limited     {{bool}} NOT NULL,
    scopes      {{text}} NOT NULL DEFAULT '[]',
    environment {{text}} NOT NULL DEFAULT '',
    ip          {{text}} NOT NULL DEFAULT '',
    created_at  {{int}} NOT NULL,
    expires_at  {{int}} NOT NULL
){{strict}};
CREATE INDEX sessions_by_user ON sessions (user_id);
CREATE INDEX sessions_by_key ON sessions (key_id);
CREATE INDEX sessions_by_root ON sessions (root);
CREATE INDEX sessions_by_end ON sessions (expires_at);

-- Only the digest of a key is kept; it is also in the system's credentials,
-- which say in which tenant to look.
CREATE TABLE api_keys (
    id           {{text}} NOT NULL PRIMARY KEY,
    name         {{text}} NOT NULL,
    environment  {{text}} NOT NULL DEFAULT '',
    digest       {{text}} NOT NULL,
    hint         {{text}} NOT NULL DEFAULT '',
    scopes       {{text}} NOT NULL DEFAULT '[]',
    owner        {{text}} NOT NULL DEFAULT '',
    created_by   {{text}} NOT NULL DEFAULT '',
    created_at   {{int}} NOT NULL,
    expires_at   {{int}},
    last_used_at {{int}}
){{strict}};
CREATE UNIQUE INDEX api_keys_by_digest ON api_keys (digest);
CREATE INDEX api_keys_by_owner ON api_keys (owner);

-- Guesses at passwords: by account (known or not) and by address.
CREATE TABLE login_attempts (
    subject      {{text}} NOT NULL PRIMARY KEY,
    failures     {{int}} NOT NULL,
    refused      {{int}} NOT NULL DEFAULT 0,
    since        {{int}} NOT NULL,
    locked_until {{int}} NOT NULL
){{strict}};
CREATE INDEX login_attempts_by_age ON login_attempts (since);

CREATE TABLE tenant_alerts (
    id          {{id}},
    type        {{text}} NOT NULL,
    severity    {{text}} NOT NULL,
    subject     {{text}} NOT NULL,
    message     {{text}} NOT NULL,
    created_at  {{int}} NOT NULL,
    resolved_at {{int}}
){{strict}};
CREATE INDEX tenant_alerts_open ON tenant_alerts (type, subject, resolved_at);

-- The enforcement mode of each environment; no row: shadow.
CREATE TABLE enforcement (
    environment {{text}} NOT NULL PRIMARY KEY,
    mode        {{text}} NOT NULL,
    updated_at  {{int}} NOT NULL,
    updated_by  {{text}} NOT NULL
){{strict}};

-- +goose Down
DROP TABLE enforcement;
DROP TABLE tenant_alerts;
DROP TABLE login_attempts;
DROP TABLE api_keys;
DROP TABLE sessions;
DROP TABLE user_names;
DROP TABLE users;
