package enforce

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// customers is a JSON answer of about 20 kB, with personal data in every record.
func customers() string {
	var list []string
	for i := range 62 {
		list = append(list, fmt.Sprintf(`{"id":%d,"order":"Order %d","email":"user%d@example.com","note":"Delivered to the front desk on Monday; the customer asked us to call (415) 555-%04d and pays with 4111 1111 1111 1111 next time, as agreed with the team in writing.","total":12.5,"tags":["a","b"],"created_at":"2026-05-01T12:00:00Z"}`, i, i, i, i))
	}
	return "[" + strings.Join(list, ",") + "]"
}

// BenchmarkMaskedAnswer is one client over one connection: the time of a
// request with a JSON answer of 20 kB through the bouncer, plain, and with its
// body read for a control and the answer masked in all seven categories. The
// median is what inspection and masks add to.
//
//	go test -run - -bench MaskedAnswer -benchtime 2000x ./internal/enforce/
func BenchmarkMaskedAnswer(b *testing.B) {
	answer := customers()
	app := newApplication(b, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, answer)
	})
	const inspecting = "package reading\n\nallow if count(deny) == 0\n\ndeny contains \"no\" if input.llm.messages[_].content == \"secret\"\n"
	for _, tc := range []struct {
		name     string
		controls []control
	}{
		{"plain", []control{{id: 1, source: allowAll}}},
		{"inspected", []control{{id: 1, source: inspecting}}},
		{"inspected and masked", []control{{id: 1, source: inspecting}, {id: 2, source: maskPII}}},
	} {
		b.Run(tc.name, func(b *testing.B) {
			p := newPlane(b)
			p.discard = true
			p.publish(policySet{revision: 1, mode: "enforce", controls: tc.controls})
			run := start(b, p, app.URL, nil).at(b, 1)
			defer run.stop()
			client := &http.Client{Transport: &http.Transport{}}
			took := make([]time.Duration, 0, b.N)
			for b.Loop() {
				began := time.Now()
				resp, err := client.Post(run.url+"/v1/chat", "application/json", strings.NewReader(chat))
				errtest.Must(b, err)
				n, _ := io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				took = append(took, time.Since(began))
				if resp.StatusCode != 200 || n < 15_000 {
					b.Fatal(resp.StatusCode, n)
				}
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "median-us")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-us")
		})
	}
}
