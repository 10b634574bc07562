package patch

import (
	"reflect"
	"testing"
)

// TestDifferences: changed members are noted with both values, others are not.
func TestDifferences(t *testing.T) {
	d := Differences{}
	d.Note("same", []string{"a"}, []string{"a"})
	d.Note("list", []string{"a"}, []string{"b"})
	d.Note("nothing before", nil, 1)
	d.Note("another type", 1, int64(1))
	want := Differences{
		"list": map[string]any{"from": []string{"a"}, "to": []string{"b"}}, "nothing before": map[string]any{"from": nil, "to": 1},
		"another type": map[string]any{"from": 1, "to": int64(1)},
	}
	if !reflect.DeepEqual(d, want) {
		t.Errorf("%v, want %v", d, want)
	}
}
