-- +goose Up
-- The tenant's identity provider: one row, or none. The client's secret is sealed.
CREATE TABLE sign_on (
    id             {{int}} NOT NULL PRIMARY KEY,
    settings       {{text}} NOT NULL,
    sealed_secret  {{bytes}} NOT NULL,
    enabled        {{bool}} NOT NULL,
    password_login {{bool}} NOT NULL,
    updated_at     {{int}} NOT NULL
){{strict}};

-- What may be used once: states of sign-ins, and ids of logout tokens.
CREATE TABLE sign_on_used (
    digest     {{text}} NOT NULL PRIMARY KEY,
    expires_at {{int}} NOT NULL
){{strict}};
CREATE INDEX sign_on_used_by_end ON sign_on_used (expires_at);

-- Who a person is at an identity provider.
CREATE TABLE user_identities (
    id         {{text}} NOT NULL PRIMARY KEY,
    issuer     {{text}} NOT NULL,
    subject    {{text}} NOT NULL,
    user_id    {{text}} NOT NULL,
    created_at {{int}} NOT NULL,
    created_by {{text}} NOT NULL,
    last_used_at {{int}}
){{strict}};
CREATE UNIQUE INDEX user_identities_by_subject ON user_identities (issuer, subject);
CREATE INDEX user_identities_by_user ON user_identities (user_id);

-- The provider's side of a session: the issuer, the subject, the provider's session, and
-- the sealed ID token that ends it there.
ALTER TABLE sessions ADD COLUMN issuer {{text}} NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN issuer_subject {{text}} NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN issuer_session {{text}} NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN id_token {{text}} NOT NULL DEFAULT '';
CREATE INDEX sessions_by_issuer ON sessions (issuer, issuer_subject);

-- +goose Down
DROP INDEX sessions_by_issuer;
ALTER TABLE sessions DROP COLUMN id_token;
ALTER TABLE sessions DROP COLUMN issuer_session;
ALTER TABLE sessions DROP COLUMN issuer_subject;
ALTER TABLE sessions DROP COLUMN issuer;
DROP TABLE user_identities;
DROP TABLE sign_on_used;
DROP TABLE sign_on;
