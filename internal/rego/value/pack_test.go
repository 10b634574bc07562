package value

import (
	"testing"
	"unsafe"

	"pgregory.net/rapid"
)

// A packed list holds what the list held, spelled as it was.
func TestPackKeepsAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		vs := rapid.SliceOfN(drawValue(3, true), 0, 5).Draw(t, "values")
		known := map[string]string{}
		if rapid.Bool().Draw(t, "known") {
			known["a"], known[""] = "a", ""
		}
		out := Pack(vs, known)
		if len(out) != len(vs) {
			t.Fatalf("%d values became %d", len(vs), len(out))
		}
		for i := range vs {
			if !Equal(out[i], vs[i]) || string(out[i].AppendExact(nil)) != string(vs[i].AppendExact(nil)) ||
				string(out[i].AppendJSON(nil)) != string(vs[i].AppendJSON(nil)) || out[i].Size() != vs[i].Size() {
				t.Fatalf("%s became %s", vs[i].AppendJSON(nil), out[i].AppendJSON(nil))
			}
		}
	})
}

// Strings that are known are not copied, and the rest is one piece.
func TestPackSharesWhatIsKnown(t *testing.T) {
	read := "read"
	out := Pack([]Value{SetOf([]Value{String("re" + "ad"), String("write")}), Object(Member{Key: "note", Value: String("x")})}, map[string]string{read: read})
	of := func(v Value) *byte {
		s, _ := v.Str()
		return unsafe.StringData(s)
	}
	if of(out[0].Index(0)) != unsafe.StringData(read) {
		t.Error("a known string was copied")
	}
	write, note := of(out[0].Index(1)), of(out[1].Pair(0).K)
	if uintptr(unsafe.Pointer(note)) != uintptr(unsafe.Pointer(write))+uintptr(len("write")) {
		t.Error("two strings do not lie side by side")
	}
	if n := testing.AllocsPerRun(100, func() { Pack(out, nil) }); n > 4 {
		t.Errorf("%v pieces of memory", n)
	}
}
