package bouncer

import (
	"context"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// indexed counts the rows of the system index with a digest; "" counts all rows.
func indexed(t *testing.T, c *db.Cluster, digest string) int {
	t.Helper()
	var n int64
	err := c.System().Read(context.Background(), func(tx *db.Tx) (err error) {
		n, err = db.One[int64](context.Background(), tx, `SELECT count(*) FROM credentials WHERE kind = 'bouncer' AND ($1 = '' OR digest = $1)`, digest)
		return err
	})
	errtest.Must(t, err)
	return int(n)
}
