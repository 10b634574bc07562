-- +goose Up
-- When each bouncer was last heard of, on whichever replica, and when it counts
-- as gone unless it is heard of again: three of its own poll intervals later.
CREATE TABLE bridge_presence (
    bouncer_id {{int}} NOT NULL PRIMARY KEY,
    seen_at    {{int}} NOT NULL,
    due_at     {{int}} NOT NULL
){{strict}};
CREATE INDEX bridge_presence_due ON bridge_presence (due_at);

-- The key that the tenant's bundles are signed with; the private half is sealed.
CREATE TABLE bridge_keys (
    kid        {{text}} NOT NULL PRIMARY KEY,
    public     {{text}} NOT NULL,
    sealed     {{bytes}} NOT NULL,
    created_at {{int}} NOT NULL
){{strict}};

-- +goose Down
DROP TABLE bridge_keys;
DROP TABLE bridge_presence;
