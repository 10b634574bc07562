package controlfile

import (
	"math"

	"go.yaml.in/yaml/v3"
)

// value reads a node as a JSON value. A value that JSON cannot represent is an issue. A date
// becomes a string.
func (m *manifestReader) value(n *yaml.Node, depth int) any {
	if depth > maxNesting {
		m.refuse(n, "nested deeper than %d levels", maxNesting)
		return nil
	}
	switch n.Kind {
	case yaml.MappingNode:
		out := map[string]any{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i]
			_, twice := out[key.Value]
			switch {
			case key.Kind != yaml.ScalarNode || key.ShortTag() == "!!merge" || key.ShortTag() == "!!null":
				m.refuse(key, "a member's name must be a string")
				continue
			case twice:
				m.refuse(key, "the member %q occurs twice", clip(key.Value))
				continue
			}
			v := m.follow(n.Content[i+1])
			if v == nil {
				return nil
			}
			out[key.Value] = m.value(v, depth+1)
		}
		return out
	case yaml.SequenceNode:
		out := []any{}
		for _, item := range n.Content {
			v := m.follow(item)
			if v == nil {
				return nil
			}
			out = append(out, m.value(v, depth+1))
		}
		return out
	default:
		return m.scalar(n)
	}
}

func (m *manifestReader) scalar(n *yaml.Node) any {
	switch n.ShortTag() {
	case "!!null":
		return nil
	case "!!bool":
		return m.flag(n)
	case "!!int":
		var v int64
		if n.Decode(&v) == nil {
			return v
		}
		m.refuse(n, "the number is too large")
	case "!!float":
		var v float64
		if n.Decode(&v) == nil && !math.IsInf(v, 0) && !math.IsNaN(v) {
			return v
		}
		m.refuse(n, "a number that JSON can represent is expected here")
	case "!!str", "!!timestamp":
		return n.Value
	default:
		m.refuse(n, "the tag %s is not supported here", clip(n.Tag))
	}
	return nil
}
