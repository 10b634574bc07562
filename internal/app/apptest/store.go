package apptest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// StoredText returns all text that the server stores: the files of its data directory and, on PostgreSQL,
// the rows of all tables.
func (s *Server) StoredText(t testing.TB) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(s.Dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		all.Write(text)
		return err
	})
	errtest.Must(t, err)
	address := s.DatabaseURL()
	if address == "" {
		return all.String()
	}
	conn, err := pgx.Connect(t.Context(), address)
	errtest.Must(t, err)
	defer conn.Close(t.Context())
	for _, name := range Tables(t, conn) {
		rows, err := conn.Query(t.Context(), "SELECT coalesce(string_agg(to_jsonb(r)::text, ','), '') FROM "+name+" r")
		errtest.Must(t, err)
		text, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[string])
		errtest.Must(t, err)
		all.WriteString(text)
	}
	return all.String()
}

// Tables returns the quoted names of all tables except PostgreSQL's own.
func Tables(t testing.TB, conn *pgx.Conn) []string {
	t.Helper()
	rows, err := conn.Query(t.Context(), `SELECT format('%I.%I', table_schema, table_name) FROM information_schema.tables
		WHERE table_schema NOT IN ('pg_catalog', 'information_schema') AND table_type = 'BASE TABLE'`)
	errtest.Must(t, err)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	errtest.Must(t, err)
	return tables
}
