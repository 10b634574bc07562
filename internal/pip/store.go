package pip

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/job"
	"github.com/gatehouse-dev/gatehouse/internal/pip/source"
	"github.com/gatehouse-dev/gatehouse/internal/secret/reseal"
)

const (
	columns = `id, name, provider, connection_type, configuration, credentials, sync_enabled, sync_frequency, created_by, created_at, updated_at,
	change_no, next_at, last_attempt_at, last_sync_at, last_error, failures, records, data_bytes`
	filtered = ` FROM pip_connections WHERE ($1 = '' OR provider = $1) AND ($2 = '' OR connection_type = $2) AND ($3 = '' OR $3 = CASE
		WHEN last_attempt_at IS NULL THEN 'unknown' WHEN last_error IS NULL THEN 'healthy' WHEN last_sync_at IS NULL THEN 'unhealthy' ELSE 'stale' END)`
)

func count(ctx context.Context, tx *db.Tx, f Filter) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT COUNT(*)`+filtered, f.Provider, f.Type, f.Health)
}

func list(ctx context.Context, tx *db.Tx, f Filter) ([]Connection, error) {
	return db.All[Connection](ctx, tx, `SELECT `+columns+filtered+` ORDER BY id LIMIT $4 OFFSET $5`, f.Provider, f.Type, f.Health, f.Limit, f.Skip)
}

func get(ctx context.Context, tx *db.Tx, id int64) (Connection, error) {
	return db.One[Connection](ctx, tx, `SELECT `+columns+` FROM pip_connections WHERE id = $1`, id)
}

type connectionName struct {
	ID   int64  `db:"id"`
	Name string `db:"name"`
}

func names(ctx context.Context, tx *db.Tx) ([]connectionName, error) {
	return db.All[connectionName](ctx, tx, `SELECT id, name FROM pip_connections ORDER BY id`)
}

func insert(ctx context.Context, tx *db.Tx, c Connection) (Connection, error) {
	return db.One[Connection](ctx, tx, `INSERT INTO pip_connections (name, provider, connection_type, configuration, credentials, sync_enabled, sync_frequency,
			created_by, created_at, updated_at, change_no, next_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) RETURNING `+columns,
		c.Name, c.Provider, c.ConnectionType, c.Configuration, c.Credentials, c.SyncEnabled, c.SyncFrequency, c.CreatedBy, c.CreatedAt, c.UpdatedAt, c.ChangeNo, c.NextSync)
}

// update writes the columns that people change. The Syncer writes the others.
func update(ctx context.Context, tx *db.Tx, c Connection) (Connection, error) {
	return db.One[Connection](ctx, tx, `UPDATE pip_connections SET name = $2, connection_type = $3, configuration = $4, credentials = $5, sync_enabled = $6,
			sync_frequency = $7, updated_at = $8, change_no = $9, next_at = $10 WHERE id = $1 RETURNING `+columns,
		c.ID, c.Name, c.ConnectionType, c.Configuration, c.Credentials, c.SyncEnabled, c.SyncFrequency, c.UpdatedAt, c.ChangeNo, c.NextSync)
}

func remove(ctx context.Context, tx *db.Tx, id int64) error {
	for _, sql := range []string{
		`DELETE FROM pip_data WHERE connection_id = $1`,
		`DELETE FROM pip_syncs WHERE connection_id = $1`,
		`DELETE FROM pip_connections WHERE id = $1`,
	} {
		if err := tx.Do(ctx, sql, id); err != nil {
			return err
		}
	}
	return nil
}

// makeDue sets the next sync of a connection to now.
func makeDue(ctx context.Context, tx *db.Tx, id int64, now time.Time) error {
	return tx.Do(ctx, `UPDATE pip_connections SET next_at = $2 WHERE id = $1`, id, now)
}

type since struct {
	ID int64     `db:"id"`
	At time.Time `db:"since"`
}

// agesOf returns, for each connection, when its data was last read or confirmed, or else when the
// connection was created.
func agesOf(ctx context.Context, tx *db.Tx) ([]since, error) {
	return db.All[since](ctx, tx, `SELECT id, COALESCE(last_sync_at, created_at) AS since FROM pip_connections ORDER BY id`)
}

// lanes is the table of the lanes: each connection is one, and one replica at a time syncs it.
const lanes job.LaneTable = "pip_connections"

func laneStates(ctx context.Context, tx *db.Tx) ([]job.Lane, error) {
	return db.All[job.Lane](ctx, tx, `SELECT id, lane_until, lane_holder, next_at AS due FROM pip_connections ORDER BY id`)
}

// saveOutcome writes how a sync ended, and frees the lane. It returns false if this replica does
// not hold the lane any more, or if somebody changed the connection since the sync began.
func saveOutcome(ctx context.Context, tx *db.Tx, c Connection, holder string) (bool, error) {
	n, err := tx.Exec(ctx, `UPDATE pip_connections SET next_at = $4, last_attempt_at = $5, last_sync_at = $6, last_error = $7, failures = $8, records = $9,
			data_bytes = $10, lane_holder = '', lane_until = 0
		WHERE id = $1 AND lane_holder = $2 AND change_no = $3`,
		c.ID, holder, c.ChangeNo, c.NextSync, c.LastAttempt, c.LastSync, c.LastError, c.Failures, c.RecordsSynced, c.DataBytes)
	return n == 1, err
}

const syncColumns = `id, connection_id, reason, status, attempts, created_at, started_at, finished_at, records, changed, error, response_code`

func listSyncs(ctx context.Context, tx *db.Tx, connection, skip, limit int64) ([]Sync, error) {
	return db.All[Sync](ctx, tx, `SELECT `+syncColumns+` FROM pip_syncs WHERE connection_id = $1 ORDER BY id DESC LIMIT $2 OFFSET $3`, connection, limit, skip)
}

func countSyncs(ctx context.Context, tx *db.Tx, connection int64) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT COUNT(*) FROM pip_syncs WHERE connection_id = $1`, connection)
}

func getSync(ctx context.Context, tx *db.Tx, connection, id int64) (Sync, error) {
	return db.One[Sync](ctx, tx, `SELECT `+syncColumns+` FROM pip_syncs WHERE connection_id = $1 AND id = $2`, connection, id)
}

// openSync returns the sync of a connection that has not ended, or db.ErrNoRows.
func openSync(ctx context.Context, tx *db.Tx, connection int64) (Sync, error) {
	return db.One[Sync](ctx, tx, `SELECT `+syncColumns+` FROM pip_syncs WHERE connection_id = $1 AND finished_at IS NULL ORDER BY id LIMIT 1`, connection)
}

// insertSync adds a sync, and deletes the oldest ones that have ended beyond keptSyncs.
func insertSync(ctx context.Context, tx *db.Tx, y Sync) (Sync, error) {
	err := tx.Do(ctx, `DELETE FROM pip_syncs WHERE connection_id = $1 AND finished_at IS NOT NULL AND id NOT IN (
			SELECT id FROM pip_syncs WHERE connection_id = $1 ORDER BY id DESC LIMIT $2)`, y.ConnectionID, keptSyncs-1)
	if err != nil {
		return y, err
	}
	return db.One[Sync](ctx, tx, `INSERT INTO pip_syncs (connection_id, reason, status, created_at) VALUES ($1, $2, $3, $4) RETURNING `+syncColumns,
		y.ConnectionID, y.Reason, y.Status, y.CreatedAt)
}

func updateSync(ctx context.Context, tx *db.Tx, y Sync) error {
	return tx.Do(ctx, `UPDATE pip_syncs SET status = $2, attempts = $3, started_at = $4, finished_at = $5, records = $6, changed = $7, error = $8,
			response_code = $9 WHERE id = $1`,
		y.ID, y.Status, y.Attempts, y.StartedAt, y.FinishedAt, y.Records, y.Changed, y.Error, y.ResponseCode)
}

// stored is what the last good fetch stored: the document, its hash, and the state for the next
// fetch.
type stored struct {
	Data  []byte       `db:"data"`
	Sum   string       `db:"sum"`
	State source.State `db:"state"`
}

func getData(ctx context.Context, tx *db.Tx, connection int64) (stored, error) {
	return db.One[stored](ctx, tx, `SELECT data, sum, state FROM pip_data WHERE connection_id = $1`, connection)
}

func putData(ctx context.Context, tx *db.Tx, connection int64, d stored) error {
	return tx.Do(ctx, `INSERT INTO pip_data (connection_id, data, sum, state) VALUES ($1, $2, $3, $4)
		ON CONFLICT (connection_id) DO UPDATE SET data = excluded.data, sum = excluded.sum, state = excluded.state`, connection, d.Data, d.Sum, d.State)
}

func putState(ctx context.Context, tx *db.Tx, connection int64, state source.State) error {
	return tx.Do(ctx, `UPDATE pip_data SET state = $2 WHERE connection_id = $1`, connection, state)
}

// forgetState makes the next fetch read everything.
func forgetState(ctx context.Context, tx *db.Tx, connection int64) error {
	return putState(ctx, tx, connection, source.State{})
}

// dataOfOthers returns the size of the data of all connections but one, in bytes of JSON.
func dataOfOthers(ctx context.Context, tx *db.Tx, connection int64) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT COALESCE(CAST(SUM(data_bytes) AS BIGINT), 0) FROM pip_connections WHERE id <> $1`, connection)
}

// Secrets declares the credentials of data sources, for package reseal.
func (s *Service) Secrets() []reseal.Column {
	return []reseal.Column{{Table: "pip_connections", Name: "credentials", Key: "id", Box: s.Box, Place: reseal.ByID(place)}}
}
