package source

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/freeport"
	"github.com/gatehouse-dev/gatehouse/internal/outbound/outboundtest"
)

// database is a table of people in a real PostgreSQL.
type database struct {
	*pgx.Conn
	table string
	// url and secrets are for a source in clear.
	url     string
	secrets Credentials
}

// newDatabase creates a table with ada and bob.
func newDatabase(t *testing.T) *database {
	if !slices.Contains(dbtest.Backends(), dbtest.Postgres) {
		t.Skip("needs PostgreSQL: a full run has it")
	}
	address := dbtest.Server(t)
	conn, err := pgx.Connect(t.Context(), address)
	errtest.Must(t, err)
	u, err := url.Parse(address)
	errtest.Must(t, err)
	password, _ := u.User.Password()
	d := &database{
		Conn: conn, table: fmt.Sprintf("pip_test_%d", time.Now().UnixNano()),
		url: "postgres://" + u.Host + u.Path + "?sslmode=disable", secrets: Credentials{Username: u.User.Username(), Password: password},
	}
	d.run(t, `CREATE TABLE %s (id text PRIMARY KEY, grade int, manager bool, tags text[], extra jsonb, gone bool, changed_at timestamptz DEFAULT now() - interval '1 hour')`)
	d.run(t, `INSERT INTO %s VALUES ('ada', 7, true, '{a,b}', '{"x":1}'), ('bob', 3, false, '{}', NULL)`)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if _, err := conn.Exec(ctx, "DROP TABLE "+d.table); err != nil {
			t.Error(err)
		}
		_ = conn.Close(ctx)
	})
	return d
}

// run runs a statement about the table.
func (d *database) run(t *testing.T, statement string) {
	t.Helper()
	errtest.Must(t, errtest.Of(d.Exec(t.Context(), fmt.Sprintf(statement, d.table))))
}

// order returns the order to fetch a query of the table.
func (d *database) order(query string) Order {
	return Order{
		Provider: SQL, Credentials: d.secrets,
		Config: Config{URL: d.url, Key: "id", SQL: &Query{Query: strings.ReplaceAll(query, "people", d.table)}},
	}
}

// TestSQL checks that each row is a record, with the JSON types to which PostgreSQL converts its columns.
func TestSQL(t *testing.T) {
	d, f := newDatabase(t), fetcher(t)
	res := f.get(t, d.order("SELECT id, grade, manager, tags, extra FROM people -- all of them\n;"))
	want := `{"ada":{"id":"ada","grade":7,"manager":true,"tags":["a","b"],"extra":{"x":1}},"bob":{"id":"bob","grade":3,"manager":false,"tags":[],"extra":null}}`
	if got := string(res.Data.AppendJSON(nil)); got != want || res.Records != 2 {
		t.Errorf("the data is %s of %d records, want %s of 2", got, res.Records, want)
	}
	o := d.order("WITH old AS (SELECT * FROM people) SELECT id, grade FROM old ORDER BY id")
	o.Config.Key, o.Config.Fields = "", map[string]string{"g": "grade"}
	if got := string(f.get(t, o).Data.AppendJSON(nil)); got != `[{"g":7},{"g":3}]` {
		t.Errorf("without a key the data is %s, want an array of grades", got)
	}
	o = d.order("SELECT id, grade FROM people")
	o.Sample = true
	if res := f.get(t, o); len(res.Sample) != 2 || len(res.Fields) != 2 || res.Fields[0] != (Field{"grade", "number"}) {
		t.Errorf("the sample is %v with the fields %v, want 2 records with 2 fields", res.Sample, res.Fields)
	}
}

// TestSQLChanges checks that with incremental, a sync reads only changes, and removes deleted records.
func TestSQLChanges(t *testing.T) {
	d, f := newDatabase(t), fetcher(t)
	o := d.order("SELECT id, grade, gone FROM people WHERE $1::timestamptz IS NULL OR changed_at >= $1")
	o.Config.Incremental = &Incremental{Deleted: "gone"}
	o.Config.Fields = map[string]string{"grade": "grade"}
	first := f.get(t, o)
	d.run(t, "UPDATE %s SET grade = 9, changed_at = now() WHERE id = 'ada'")
	d.run(t, "UPDATE %s SET gone = true, changed_at = now() WHERE id = 'bob'")
	d.run(t, "INSERT INTO %s (id, grade, changed_at) VALUES ('eve', 1, now() - interval '1 hour')") // old: only a full sync finds it
	o.State, o.Previous = first.State, first.Data
	second := f.get(t, o)
	if got := string(second.Data.AppendJSON(nil)); got != `{"ada":{"grade":9}}` {
		t.Errorf("the data after changes is %s, want ada with 9", got)
	}
	if !second.State.FullAt.Equal(first.State.FullAt) || second.State.Since.Before(first.State.Since) {
		t.Errorf("the state is %+v after %+v, want the same full sync and a later time", second.State, first.State)
	}
	f.Now = func() time.Time { return time.Now().Add(25 * time.Hour) }
	if got := string(f.get(t, o).Data.AppendJSON(nil)); got != `{"ada":{"grade":9},"eve":{"grade":1}}` {
		t.Errorf("the data after a full sync is %s, want ada and eve", got)
	}
}

// TestSQLFailures checks that failures are reported in gatehouse's own words, and nothing is written.
func TestSQLFailures(t *testing.T) {
	d, f := newDatabase(t), fetcher(t)
	for query, want := range map[string]string{
		"SELECT id FROM people_none":                                             "42P01: the query names a table that does not exist",
		"SELECT id, secret FROM people":                                          "42703: the query names a column that does not exist (at character 12)",
		"SELECT id FROM people WHERE":                                            "syntax error",
		"SELECT 'ada' AS id; DELETE FROM people":                                 "syntax error",
		"SELECT 'ada' AS id) AS a; DELETE FROM people; SELECT (1":                "42601",
		"WITH gone AS (DELETE FROM people RETURNING id) SELECT * FROM gone":      "0A000",
		"SELECT id, nextval('people_seq') FROM people":                           "42P01",
		"SELECT id, grade / 0 AS x FROM people":                                  "22012",
		"SELECT id, cast(id AS int) AS x FROM people":                            "22P02",
		"SELECT id, 1 AS a, 2 AS a FROM people":                                  "not JSON that gatehouse accepts",
		"SELECT id, '1e999'::numeric AS a FROM people":                           "not JSON that gatehouse accepts",
		"SELECT i AS id FROM generate_series(1, 50001) i":                        "more than 50000 records",
		"SELECT i AS id, repeat('x', 3000000) AS x FROM generate_series(1, 9) i": "answered with more than 8 MiB",
		"SELECT grade / 10.0 AS id FROM people":                                  "has no key",
		"SELECT id FROM people WHERE id = $1":                                    "connection to the database failed",
	} {
		failure := f.wantFailure(t, d.order(query), want)
		if strings.Contains(failure.Message, "ada") {
			t.Errorf("%s: the failure is %q, want no data in it", query, failure.Message)
		}
	}
	o := d.order("SELECT set_config('default_transaction_read_only', 'off', false) AS id")
	f.get(t, o)
	var n int
	if err := d.QueryRow(t.Context(), "SELECT count(*) FROM "+d.table).Scan(&n); err != nil || n != 2 {
		t.Errorf("the table has %d rows, error %v, want 2", n, err)
	}
	o = d.order("SELECT id FROM people")
	o.Config.URL = strings.Replace(o.Config.URL, "?sslmode=disable", "", 1)
	f.wantFailure(t, o, "the connection to the database failed")
	o.Config.URL = "postgres://10.0.0.1/people"
	f.wantFailure(t, o, "could not be reached")
}

// TestSQLEncrypted checks that by default the connection is encrypted and the certificate is verified.
func TestSQLEncrypted(t *testing.T) {
	d := newDatabase(t)
	settings, roots := outboundtest.Certificate(t)
	o := d.order("SELECT id, grade FROM people")
	u, err := url.Parse(o.Config.URL)
	errtest.Must(t, err)
	u.Host, u.RawQuery = serveTLS(t, u.Host, settings), ""
	o.Config.URL = u.String()
	if res := fetcherFor(t, roots).get(t, o); res.Records != 2 {
		t.Errorf("%d records over TLS, want 2", res.Records)
	}
	fetcher(t).wantFailure(t, o, "the certificate of the database is not valid")
}

// serveTLS starts a proxy that adds TLS to a PostgreSQL server, with its SSLRequest message.
func serveTLS(t *testing.T, server string, settings *tls.Config) string {
	t.Helper()
	return freeport.Accept(t, func(conn net.Conn) {
		request := make([]byte, 8) // SSLRequest
		if _, err := io.ReadFull(conn, request); err != nil {
			return
		}
		if _, err := conn.Write([]byte("S")); err != nil {
			return
		}
		inner, err := net.Dial("tcp", server)
		if err != nil {
			return
		}
		defer inner.Close()
		outer := tls.Server(conn, settings)
		var both sync.WaitGroup
		both.Go(func() { _, _ = io.Copy(inner, outer); _ = inner.Close() })
		both.Go(func() { _, _ = io.Copy(outer, inner); _ = outer.Close() })
		both.Wait()
	})
}

// TestSQLPeers checks that if the server at the address is not PostgreSQL, the fetch ends with a Failure.
func TestSQLPeers(t *testing.T) {
	for name, answer := range map[string]string{
		"web server": "HTTP/1.1 400 Bad Request\r\n\r\n",
		"no TLS":     "N",
		"huge":       "R\x7f\xff\xff\xff\x00\x00\x00\x00",
		"silent":     "",
	} {
		t.Run(name, func(t *testing.T) {
			f := fetcher(t)
			f.Limit = 2 * time.Second
			o := Order{Provider: SQL, Credentials: Credentials{Username: "u"}, Config: Config{URL: "postgres://" + serveBytes(t, answer) + "/x?sslmode=disable", SQL: &Query{Query: "SELECT 1"}}}
			want := "the connection to the database failed"
			if name == "silent" {
				want = "took longer"
			}
			f.wantFailure(t, o, want)
		})
	}
}

// serveBytes starts a server that sends the same bytes to every client.
func serveBytes(t *testing.T, answer string) string {
	t.Helper()
	return freeport.Accept(t, func(conn net.Conn) {
		_, _ = conn.Write([]byte(answer))
		if answer == "" {
			_, _ = io.Copy(io.Discard, conn)
		}
	})
}
