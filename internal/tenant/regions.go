package tenant

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/db"
)

// LoadRegions reads the stores of regions from JSON, or from the file with that name. Its
// errors show no value, because a database URL holds a password.
func LoadRegions(text string) (map[string]db.Region, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return nil, nil
	}
	if !strings.HasPrefix(text, "{") {
		if strings.Contains(text, "://") {
			return nil, errors.New("a JSON object or the name of a file is needed")
		}
		data, err := os.ReadFile(text)
		if err != nil {
			return nil, err
		}
		text = string(data)
	}
	dec := json.NewDecoder(strings.NewReader(text))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("it is not a JSON object of regions and their stores")
	}
	out := map[string]db.Region{}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, errors.New("it is not valid JSON")
		}
		region, _ := name.(string) // the decoder returns only strings here
		var where string
		if err := dec.Decode(&where); err != nil {
			return nil, fmt.Errorf("%s: the store must be a text: a postgres:// URL or a directory", region)
		}
		if _, twice := out[region]; twice {
			return nil, fmt.Errorf("%s occurs twice", region)
		}
		if out[region], err = parseRegion(region, where); err != nil {
			return nil, err
		}
	}
	if _, err := dec.Token(); err != nil {
		return nil, errors.New("it is not valid JSON")
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is text after the JSON object")
	}
	return out, nil
}

// parseRegion reads one region's store.
func parseRegion(name, where string) (db.Region, error) {
	switch {
	case !slices.Contains(knownRegions(), name):
		return db.Region{}, fmt.Errorf("%q is not a region; the regions are %s", name, strings.Join(knownRegions(), ", "))
	case where == "":
		return db.Region{}, fmt.Errorf("%s: a postgres:// URL or a directory is needed", name)
	case strings.Contains(where, "://"):
		u, err := url.Parse(where)
		if err != nil || u.Host == "" || u.Scheme != "postgres" && u.Scheme != "postgresql" {
			return db.Region{}, fmt.Errorf("%s: it is not a postgres:// URL", name)
		}
		return db.Region{URL: where}, nil
	}
	return db.Region{Dir: where}, nil
}

// knownRegions returns the names that the API accepts.
func knownRegions() []string {
	return []string{
		"us-east-1", "us-west-2", "ca-central-1", "eu-west-1", "eu-central-1", "eu-north-1", "ap-southeast-1", "ap-northeast-1", "ap-south-1",
	}
}
