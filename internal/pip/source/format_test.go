package source

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// TestCSV checks how CSV files are converted, and which are refused.
func TestCSV(t *testing.T) {
	fields := map[string]string{"grade": "level"}
	for _, c := range []struct{ name, body, key, want string }{
		{"all columns", "\ufeffid,level\r\nada,7\r\n\"bob, b\",\r\n", "", `[{"id":"ada","level":"7"},{"id":"bob, b","level":""}]`},
		{"no lines", "id,level\n", "", `[]`},
		{"by key", "id,level\nada,7\nbob,3\n", "id", `{"ada":{"grade":"7"},"bob":{"grade":"3"}}`},
	} {
		cfg := Config{URL: serveText(t, c.body), Format: formatCSV, Key: c.key}
		if c.key != "" {
			cfg.Fields = fields
		}
		if got := string(fetcher(t).get(t, Order{Config: cfg}).Data.AppendJSON(nil)); got != c.want {
			t.Errorf("%s: the data is %s, want %s", c.name, got, c.want)
		}
	}
	for body, want := range map[string]string{
		"":                    "is empty",
		"id,\nada,canary\n":   "column 2 of the CSV has no name",
		"id,ID\nada,canary\n": "column 2 of the CSV has the same name",
		"id,x\nada\n":         "line 2 of the CSV has another number of columns",
		"id\nca\"nary\n":      "line 2 of the CSV has a quote",
		"id\n\xff\n":          "not UTF-8",
		"id\n" + strings.Repeat("a\n", MaxRecords+1):                  "more than 50000 records",
		strings.Repeat("c", 1<<20) + "\n" + strings.Repeat("a\n", 40): "larger than",
	} {
		f := fetcher(t).wantFailure(t, Order{Config: Config{URL: serveText(t, body), Format: formatCSV}}, want)
		if strings.Contains(f.Message, "canary") || strings.Contains(f.Message, "nary") {
			t.Errorf("the failure is %q, want nothing of the answer", f.Message)
		}
	}
	for _, cfg := range []Config{{Records: "$.x"}, {Key: "id", Pagination: &Pagination{Type: "page"}}} {
		cfg.URL, cfg.Format = "https://a.example", formatCSV
		if wrong := Check(HTTPJSON, cfg, Credentials{}); len(wrong) != 1 {
			t.Errorf("Check(%+v) = %v, want one offence", cfg, wrong)
		}
	}
}

// TestDirectoryPages checks that a SCIM directory with short pages is read completely, or the fetch fails.
func TestDirectoryPages(t *testing.T) {
	const people = 7
	for _, total := range []int{people, people + 2} {
		url := serve(t, func(w http.ResponseWriter, r *http.Request) {
			from, _ := strconv.Atoi(r.URL.Query().Get("startIndex"))
			found := []map[string]string{}
			for i := from; i < from+3 && i <= people; i++ {
				found = append(found, map[string]string{"id": strconv.Itoa(i), "userName": fmt.Sprintf("user%d", i)})
			}
			w.Header().Set("Content-Type", "application/scim+json")
			_ = json.NewEncoder(w).Encode(map[string]any{"totalResults": total, "startIndex": from, "itemsPerPage": len(found), "Resources": found})
		})
		one := 1
		o := Order{Config: Config{URL: url, Records: "$.Resources", Key: "userName", Pagination: &Pagination{
			Type: "offset", Parameter: "startIndex", First: &one, Total: "$.totalResults", SizeParameter: "count", PageSize: 100,
		}}}
		if total == people {
			if res := fetcher(t).get(t, o); res.Records != people {
				t.Errorf("the data has %d people, want %d", res.Records, people)
			}
			continue
		}
		fetcher(t).wantFailure(t, o, "says that it has 9 records, but returned 7")
	}
	if wrong := Check(HTTPJSON, Config{URL: "https://a.example", Key: "id", Pagination: &Pagination{Type: "link", Total: "$.n"}}, Credentials{}); len(wrong) != 1 {
		t.Errorf("Check of total with links = %v, want one offence", wrong)
	}
}
