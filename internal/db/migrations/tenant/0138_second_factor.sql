-- +goose Up
-- A person's second factor: the sealed secret of an authenticator app. It counts from
-- confirmed_at on; until then it is an enrolment that somebody began.
CREATE TABLE user_factors (
    user_id      {{text}} NOT NULL PRIMARY KEY,
    sealed       {{bytes}} NOT NULL,
    created_at   {{int}} NOT NULL,
    confirmed_at {{int}}
){{strict}};

-- The time steps whose codes were used. Each is accepted once.
CREATE TABLE user_factor_steps (
    user_id {{text}} NOT NULL,
    step    {{int}} NOT NULL,
    PRIMARY KEY (user_id, step)
){{strict}};

-- Hashes of recovery codes. used_at is null for one that can still be used.
CREATE TABLE user_recovery_codes (
    user_id {{text}} NOT NULL,
    digest  {{text}} NOT NULL,
    used_at {{int}},
    PRIMARY KEY (user_id, digest)
){{strict}};

-- Sign-ins whose password was right and that wait for a code.
CREATE TABLE login_challenges (
    digest          {{text}} NOT NULL PRIMARY KEY,
    user_id         {{text}} NOT NULL,
    purpose         {{text}} NOT NULL,
    password_digest {{text}} NOT NULL,
    rehash          {{text}} NOT NULL,
    failures        {{int}} NOT NULL,
    expires_at      {{int}} NOT NULL
){{strict}};
CREATE INDEX login_challenges_by_user ON login_challenges (user_id);
CREATE INDEX login_challenges_by_end ON login_challenges (expires_at);

-- What a session proved beyond the password; empty: nothing.
ALTER TABLE sessions ADD COLUMN proof {{text}} NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE sessions DROP COLUMN proof;
DROP TABLE login_challenges;
DROP TABLE user_recovery_codes;
DROP TABLE user_factor_steps;
DROP TABLE user_factors;
