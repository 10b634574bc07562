package mcp

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"

	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/masking"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// maxDepth bounds the nesting of a server's answer: schemas are deep.
const maxDepth = 128

// ErrList is an answer whose tools cannot be told.
var ErrList = errors.New("the list of tools cannot be read")

// Tool is a tool as its server lists it.
type Tool struct {
	Name string
	// Digest is of all that tells a model what the tool is for: title,
	// description, schemas, annotations.
	Digest string
	// Params are the arguments that its schema has repeated in headers.
	Params []Param
}

// FilterTools takes out of a server's answer the tools that keep is not true
// for; all other bytes stay. Answers that list no tools stay as they are. The
// tools that were listed are given, kept or not.
func FilterTools(doc []byte, keep func(name string) bool) (out []byte, tools []Tool, err error) {
	v, err := value.Decode(doc, value.Limits{Depth: maxDepth})
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrList, err)
	}
	var drop []rego.MaskRule
	one := func(prefix string, msg value.Value) error {
		result := msg.Get("result")
		list := result.Get("tools")
		if !list.Defined() || list.IsNull() {
			return nil
		}
		if list.Kind() != value.ArrayKind {
			return ErrList
		}
		for i, t := range list.Elems() {
			name, ok := t.Get("name").Str()
			if !ok {
				return ErrList
			}
			tools = append(tools, Tool{name, digest(t), paramsOf(t.Get("inputSchema"))})
			if !keep(name) {
				drop = append(drop, rego.MaskRule{Path: prefix + "/result/tools/" + strconv.Itoa(i), Strategy: lang.StrategyRemove})
			}
		}
		return nil
	}
	if v.Kind() == value.ArrayKind {
		for i, msg := range v.Elems() {
			if err := one("/"+strconv.Itoa(i), msg); err != nil {
				return nil, nil, err
			}
		}
	} else if err := one("", v); err != nil {
		return nil, nil, err
	}
	if len(drop) == 0 {
		return doc, tools, nil
	}
	out, err = masking.Apply(doc, drop, nil)
	return out, tools, err
}

func digest(t value.Value) string {
	var key []byte
	for _, name := range [...]string{"title", "description", "inputSchema", "outputSchema", "annotations"} {
		key = value.String(name).AppendKey(key)
		key = t.Get(name).AppendKey(key)
	}
	sum := sha256.Sum256(key)
	return hex.EncodeToString(sum[:16])
}
