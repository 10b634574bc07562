package mcp

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"

	"github.com/gatehouse-dev/gatehouse/internal/rego/masking"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// maxDepth limits the nesting of a server's answer. Schemas are deep.
const maxDepth = 128

// errList means that the tools in an answer cannot be read.
var errList = errors.New("the list of tools cannot be read")

// Tool is a tool in a server's list.
type Tool struct {
	Name string
	// Digest is the hash of all that tells a model what the tool is for: title, description,
	// schemas and annotations.
	Digest string
	// Params are the arguments that clients repeat in headers.
	Params []Param
}

// FilterTools removes the tools for which keep is false from a server's answer, and leaves all
// other bytes unchanged. It returns all tools of the list, removed or not. An answer without a list
// of tools stays as it is.
func FilterTools(doc []byte, keep func(name string) bool) (out []byte, tools []Tool, err error) {
	v, err := value.Decode(doc, value.Limits{Depth: maxDepth})
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errList, err)
	}
	var drop []masking.MaskRule
	one := func(prefix string, msg value.Value) error {
		result := msg.Get("result")
		list := result.Get("tools")
		if !list.Defined() || list.IsNull() {
			return nil
		}
		if list.Kind() != value.ArrayKind {
			return errList
		}
		for i, t := range list.Elems() {
			name, ok := t.Get("name").Str()
			if !ok {
				return errList
			}
			tools = append(tools, Tool{name, digest(t), paramsOf(t.Get("inputSchema"))})
			if !keep(name) {
				drop = append(drop, masking.MaskRule{Path: prefix + "/result/tools/" + strconv.Itoa(i), Strategy: masking.Remove})
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
