package document

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

// object parses a JSON object.
func object(t testing.TB, text string) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		t.Fatalf("decode %s: %v", text, err)
	}
	return m
}

const ann = `{"id":"1","userName":"Ann@Acme.example","externalId":"Ext-1","active":true,"displayName":"Ann Ågren","name":{"givenName":"Ann","familyName":"Ågren"},
	"emails":[{"value":"ann@acme.example","type":"work","primary":true},{"value":"ann@home.example","type":"home"}],
	"meta":{"created":"2026-01-02T03:04:05Z","resourceType":"User"},
	"urn:ietf:params:scim:schemas:extension:enterprise:2.0:User":{"department":"Sales","manager":{"value":"m1"}}}`

// TestFilter: a filter matches by the rules of RFC 7644, section 3.4.2.2.
func TestFilter(t *testing.T) {
	doc := object(t, ann)
	for text, want := range map[string]bool{
		`userName eq "ann@ACME.example"`:                                                   true,
		`USERNAME Eq "ann@acme.example"`:                                                   true,
		`userName ne "ann@acme.example"`:                                                   false,
		`externalId eq "ext-1"`:                                                            false, // case-exact
		`externalId eq "Ext-1"`:                                                            true,
		`userName co "ACME" and active eq true`:                                            true,
		`active eq "True"`:                                                                 true,
		`active eq False`:                                                                  false,
		`userName sw "ann" and not (userName ew ".com")`:                                   true,
		`not (userName sw "ann") or (title pr)`:                                            false,
		`title pr or displayName pr and name pr`:                                           true,
		`title eq null and displayName ne null`:                                            true,
		`displayName eq "ann \u00e5gren"`:                                                  true,
		`displayName eq "Ann A\u030agren"`:                                                 true, // decomposed
		`name.familyName sw "å"`:                                                           true,
		`emails.value eq "ANN@home.example"`:                                               true,
		`emails eq "ann@home.example"`:                                                     true,
		`emails[type eq "work"].value eq "ann@home.example"`:                               false,
		`emails[type eq "work" and value co "@acme"]`:                                      true,
		`emails[type eq "home" and primary eq true]`:                                       false,
		`emails[type eq "work"].value co "ACME" and active eq true`:                        true,
		`emails.type ne "other"`:                                                           true,
		`meta.created gt "2026-01-01T00:00:00Z"`:                                           true,
		`meta.created ge "2026-01-02T04:04:05+01:00"`:                                      true,
		`meta.created lt "2026-01-02T03:04:05Z"`:                                           false,
		`meta.created le "2026-01-02T03:04:05Z"`:                                           true,
		`userName gt "a" and userName lt "b"`:                                              true,
		`urn:ietf:params:scim:schemas:core:2.0:User:userName sw "ann"`:                     true,
		`urn:ietf:params:scim:schemas:extension:enterprise:2.0:User:department eq "sales"`: true,
		`URN:ietf:params:scim:schemas:extension:enterprise:2.0:user:manager.value eq "m1"`: true,
		`urn:ietf:params:scim:schemas:extension:enterprise:2.0:User:manager eq "m2"`:       false,
		`schemas eq "x"`:                                                                   false,
		strings.Repeat("(", maxNested) + `active eq true` + strings.Repeat(")", maxNested): true,
		`userName eq "\"" or userName eq "\\" or userName eq "a]" or emails[value eq "]"] or active eq true`: true,
	} {
		f, err := ParseFilter(UserKind(), text)
		if err != nil {
			t.Errorf("ParseFilter(%s): %v", text, err)
			continue
		}
		if got := f.Match(doc); got != want {
			t.Errorf("%s matches: %v, want %v", text, got, want)
		}
	}
}

// TestFilterRefused: a filter that cannot be read, or names what is not there, is a bad request.
func TestFilterRefused(t *testing.T) {
	for _, text := range []string{
		``, ` `, `userName`, `userName eq`, `userName eq x`, `userName eq 'x'`, `userName eq "x`, `userName eq "x" and`, `userName xx "x"`, `nickname.value eq "x"`,
		`password eq "x"`, `shoeSize gt 3`, `userName eq 3`, `userName gt true`, `active gt true`, `active eq "maybe"`, `active co "t"`, `userName gt null`,
		`meta.created gt "yesterday"`, `meta.created co "2026"`, `name eq "x"`, `emails[`, `emails[type eq "work"`, `emails[shoe eq "x"]`, `emails[type eq "work"].shoe eq "x"`,
		`userName[value eq "x"]`, `name[givenName eq "x"]`, `emails[emails[value eq "x"]]`, `(userName pr`, `userName pr)`, `not userName pr`, `userName eq "x" "y"`,
		`urn:ietf:params:scim:schemas:extension:other:2.0:User:department eq "x"`, `userName eq {"a":1}`, `userName eq ["a"]`, "userName eq \"\x01\"", `userName eq "\x"`,
		strings.Repeat("(", maxNested+1) + `active eq true` + strings.Repeat(")", maxNested+1),
		strings.Repeat(`active eq true or `, maxTerms) + `active eq true`, `userName eq "` + strings.Repeat("x", MaxFilter) + `"`,
	} {
		_, err := ParseFilter(UserKind(), text)
		if f, ok := err.(*fault.Error); !ok || f.Code != "invalid_filter" || f.Kind != fault.BadRequest {
			t.Errorf("ParseFilter(%.80s): got %v, want invalid_filter", text, err)
		}
	}
}

// TestEquals: Equals returns the value that all matches have.
func TestEquals(t *testing.T) {
	for text, want := range map[string]string{
		`userName eq "Ann"`: "ann", `active eq true and userName eq "ann"`: "ann", `userName eq "ann" or active eq true`: "", `not (userName eq "ann")`: "", `userName co "ann"`: "",
		`urn:ietf:params:scim:schemas:core:2.0:User:userName eq "ann"`: "ann",
	} {
		f, err := ParseFilter(UserKind(), text)
		errtest.Must(t, err)
		if got, ok := f.Equals("userName"); got != want || ok != (want != "") {
			t.Errorf("Equals of %s = %q, %v, want %q", text, got, ok, want)
		}
	}
}

// TestPatch covers the forms that RFC 7644 describes and that Okta and Entra ID send.
func TestPatch(t *testing.T) {
	const enterprise = `"urn:ietf:params:scim:schemas:extension:enterprise:2.0:User"`
	for _, tt := range []struct{ name, before, operations, after string }{
		{"Okta: no path", `{"active":true}`, `[{"op":"replace","value":{"active":false}}]`, `{"active":false}`},
		{"Entra: text for a boolean", `{"active":true}`, `[{"op":"Replace","path":"active","value":"False"}]`, `{"active":false}`},
		{"Entra: in a list", `{"active":false}`, `[{"op":"Replace","path":"active","value":"true"}]`, `{"active":true}`},
		{"dotted names without a path", `{}`, `[{"op":"add","value":{"name.givenName":"A","NAME.familyName":"B"}}]`, `{"name":{"givenName":"A","familyName":"B"}}`},
		{"a part", `{"name":{"givenName":"A","familyName":"B"}}`, `[{"op":"Replace","path":"name.familyName","value":"C"}]`, `{"name":{"givenName":"A","familyName":"C"}}`},
		{"a complex value keeps the other parts", `{"name":{"givenName":"A","familyName":"B"}}`, `[{"op":"replace","path":"name","value":{"familyName":"C"}}]`, `{"name":{"givenName":"A","familyName":"C"}}`},
		{"remove a part", `{"name":{"givenName":"A"}}`, `[{"op":"remove","path":"name.givenName"}]`, `{}`},
		{"null removes", `{"title":"x"}`, `[{"op":"replace","path":"title","value":null}]`, `{}`},
		{"empty text removes", `{"title":"x"}`, `[{"op":"replace","path":"title","value":""}]`, `{}`},
		{"a number for text", `{}`, `[{"op":"add","path":"` + strings.Trim(enterprise, `"`) + `:employeeNumber","value":7}]`, `{` + enterprise + `:{"employeeNumber":"7"}}`},
		{"Entra: a manager's id alone", `{}`, `[{"op":"Add","path":"` + strings.Trim(enterprise, `"`) + `:manager","value":"m1"}]`, `{` + enterprise + `:{"manager":{"value":"m1"}}}`},
		{"an extension without a path", `{}`, `[{"op":"add","value":{` + enterprise + `:{"department":"Sales"},"urn:ietf:params:scim:schemas:extension:enterprise:2.0:User:division":"D"}}]`, `{` + enterprise + `:{"department":"Sales","division":"D"}}`},
		{"remove from an extension", `{` + enterprise + `:{"department":"Sales"}}`, `[{"op":"remove","path":"` + strings.Trim(enterprise, `"`) + `:department"}]`, `{}`},
		{"remove an extension", `{` + enterprise + `:{"department":"Sales"}}`, `[{"op":"remove","path":"` + strings.Trim(enterprise, `"`) + `"}]`, `{}`},
		{"the selected value", `{"emails":[{"value":"a","type":"work"},{"value":"b","type":"home"}]}`, `[{"op":"Replace","path":"emails[type eq \"work\"].value","value":"c"}]`, `{"emails":[{"value":"c","type":"work"},{"value":"b","type":"home"}]}`},
		{"Entra: a value of a new type", `{}`, `[{"op":"Add","path":"emails[type eq \"Work\"].value","value":"c"}]`, `{"emails":[{"value":"c","type":"Work"}]}`},
		{"an object for the selected value", `{"emails":[{"value":"a","type":"work"}]}`, `[{"op":"replace","path":"emails[type eq \"work\"]","value":{"value":"c","primary":true}}]`, `{"emails":[{"value":"c","type":"work","primary":true}]}`},
		{"one primary", `{"emails":[{"value":"a","primary":true}]}`, `[{"op":"add","path":"emails","value":[{"value":"b","primary":true}]}]`, `{"emails":[{"value":"a","primary":false},{"value":"b","primary":true}]}`},
		{"an object where a list is due", `{}`, `[{"op":"add","path":"emails","value":{"value":"b"}}]`, `{"emails":[{"value":"b"}]}`},
		{"add twice", `{"members":[{"value":"1"}]}`, `[{"op":"add","path":"members","value":[{"value":"1"},{"value":"2"},{"value":"2"}]}]`, `{"members":[{"value":"1"},{"value":"2"}]}`},
		{"replace all", `{"members":[{"value":"1"}]}`, `[{"op":"replace","path":"members","value":[{"value":"2","display":"x"}]}]`, `{"members":[{"value":"2"}]}`},
		{"replace with none", `{"members":[{"value":"1"}]}`, `[{"op":"replace","path":"members","value":[]}]`, `{}`},
		{"Okta: remove a member", `{"members":[{"value":"1"},{"value":"2"}]}`, `[{"op":"remove","path":"members[value eq \"1\"]"}]`, `{"members":[{"value":"2"}]}`},
		{"Entra: remove members by value", `{"members":[{"value":"1"},{"value":"2"}]}`, `[{"op":"Remove","path":"members","value":[{"$ref":null,"value":"1"}]}]`, `{"members":[{"value":"2"}]}`},
		{"remove all members", `{"members":[{"value":"1"}]}`, `[{"op":"remove","path":"members"}]`, `{}`},
		{"remove who is not there", `{"members":[{"value":"1"}]}`, `[{"op":"remove","path":"members[value eq \"9\"]"}]`, `{"members":[{"value":"1"}]}`},
		{"Okta: a whole group", `{"displayName":"a"}`, `[{"op":"replace","value":{"id":"7","displayName":"b","schemas":[],"unknown":1}}]`, `{"displayName":"b"}`},
		{"in order", `{"title":"x"}`, `[{"op":"remove","path":"title"},{"op":"add","path":"title","value":"y"},{"op":"add","path":"urn:ietf:params:scim:schemas:core:2.0:User:nickName","value":"n"}]`, `{"title":"y","nickName":"n"}`},
	} {
		k := UserKind()
		if strings.Contains(tt.before+tt.operations, "members") || strings.Contains(tt.name, "group") {
			k = GroupKind()
		}
		before := object(t, tt.before)
		got, err := Patch(k, before, map[string]any{"operations": object(t, `{"a":`+tt.operations+`}`)["a"]})
		if err != nil || !reflect.DeepEqual(got, object(t, tt.after)) {
			t.Errorf("%s: Patch = %v, %v, want %s", tt.name, got, err, tt.after)
		}
		if !reflect.DeepEqual(before, object(t, tt.before)) {
			t.Errorf("%s: Patch changes its input to %v", tt.name, before)
		}
	}
}

// TestPatchRefused: an operation that cannot be applied is refused with a code, and lists stay bounded.
func TestPatchRefused(t *testing.T) {
	for operations, code := range map[string]string{
		`{}`: "invalid_syntax", `[]`: "invalid_syntax", `[1]`: "invalid_syntax", `[{"op":"move","path":"title"}]`: "invalid_syntax", `[{"op":"add","path":7}]`: "invalid_syntax",
		`[{"op":"remove"}]`: "no_target", `[{"op":"add","value":7}]`: "no_target", `[{"op":"add"}]`: "no_target",
		`[{"op":"replace","path":"emails[value sw \"x\"].value","value":"x"}]`: "no_target",
		`[{"op":"replace","path":"shoeSize","value":7}]`:                       "invalid_path", `[{"op":"add","path":"emails[type eq","value":7}]`: "invalid_path",
		`[{"op":"add","path":"emails[type eq \"a\"].shoe","value":7}]`: "invalid_path", `[{"op":"add","path":"title title","value":7}]`: "invalid_path",
		`[{"op":"add","path":"title[value eq \"x\"]","value":"x"}]`: "invalid_path",
		`[{"op":"replace","path":"id","value":"7"}]`:                "mutability", `[{"op":"replace","path":"groups","value":[]}]`: "mutability", `[{"op":"remove","path":"meta.created"}]`: "mutability",
		`[{"op":"replace","path":"active","value":"maybe"}]`: "invalid_value", `[{"op":"replace","path":"title","value":{}}]`: "invalid_value", `[{"op":"replace","path":"name","value":7}]`: "invalid_value",
		`[{"op":"replace","path":"title","value":"` + strings.Repeat("x", maxText+1) + `"}]`: "invalid_value", `[{"op":"replace","path":"title","value":"\u0000"}]`: "invalid_value",
	} {
		_, err := Patch(UserKind(), map[string]any{"title": "x"}, map[string]any{"Operations": object(t, `{"a":`+operations+`}`)["a"]})
		if f, ok := err.(*fault.Error); !ok || f.Code != code || f.Kind != fault.BadRequest {
			t.Errorf("Patch %.100s: got %v, want %s", operations, err, code)
		}
	}
	many := make([]any, maxValues+1)
	for i := range many {
		many[i] = map[string]any{"value": fmt.Sprint(i)}
	}
	if _, err := Patch(UserKind(), map[string]any{}, map[string]any{"Operations": []any{map[string]any{"op": "add", "path": "emails", "value": many}}}); err == nil {
		t.Error("Patch with a list over its bound succeeds, want an error")
	}
	half := many[:maxValues/2+1]
	other := make([]any, len(half))
	for i := range other {
		other[i] = map[string]any{"value": fmt.Sprint("x", i)}
	}
	if _, err := Patch(UserKind(), map[string]any{"emails": half}, map[string]any{"Operations": []any{map[string]any{"op": "add", "path": "emails", "value": other}}}); err == nil {
		t.Error("Patch that grows a list over its bound succeeds, want an error")
	}
}

// TestNormal: Normal keeps what clients may write, in its stored form.
func TestNormal(t *testing.T) {
	got, err := Normal(UserKind(), object(t, `{"schemas":["x"],"ID":"7","USERNAME":"ann","password":"secret","active":"True","shoeSize":9,"emails":[{"VALUE":"a","primary":"true"},{"value":"b","primary":true},null,{}],
		"roles":["admin"],"groups":[{"value":"1"}],"meta":{"resourceType":"User"},"nickName":null,"title":"","URN:ietf:params:scim:schemas:extension:enterprise:2.0:USER":{"Department":"Sales","x":1}}`))
	want := object(t, `{"userName":"ann","active":true,"emails":[{"value":"a","primary":true},{"value":"b","primary":false}],"roles":[{"value":"admin"}],
		"urn:ietf:params:scim:schemas:extension:enterprise:2.0:User":{"department":"Sales"}}`)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("Normal = %v, %v, want %v", got, err, want)
	}
}

// TestSelection: an answer has the attributes that the request selects, and always the id.
func TestSelection(t *testing.T) {
	const enterprise = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User"
	for _, tt := range []struct{ attributes, excluded, want string }{
		{"", "", ann},
		{"userName", "", `{"id":"1","userName":"Ann@Acme.example"}`},
		{"USERNAME,emails.value,emails.type,unknown", "", `{"id":"1","userName":"Ann@Acme.example","emails":[{"value":"ann@acme.example","type":"work"},{"value":"ann@home.example","type":"home"}]}`},
		{"name.givenName," + enterprise + ":department", "", `{"id":"1","name":{"givenName":"Ann"},"` + enterprise + `":{"department":"Sales"}}`},
		{enterprise, "", `{"id":"1","` + enterprise + `":{"department":"Sales","manager":{"value":"m1"}}}`},
		{"userName,active", "active,id", `{"id":"1","userName":"Ann@Acme.example"}`},
		{"", "id,schemas,userName,externalId,active,displayName,name.familyName,emails.primary,emails.type,meta," + enterprise + ":manager", `{"id":"1","name":{"givenName":"Ann"},"emails":[{"value":"ann@acme.example"},{"value":"ann@home.example"}],"` + enterprise + `":{"department":"Sales"}}`},
	} {
		doc := object(t, ann)
		got := ParseSelection(tt.attributes, tt.excluded).Apply(UserKind(), doc)
		if !reflect.DeepEqual(got, object(t, tt.want)) {
			t.Errorf("selection of %q without %q = %v, want %s", tt.attributes, tt.excluded, got, tt.want)
		}
		if !reflect.DeepEqual(doc, object(t, ann)) {
			t.Errorf("selection of %q without %q changes the document", tt.attributes, tt.excluded)
		}
	}
}

// FuzzFilter: a filter is refused or can be applied, and every document that matches it has the value
// that Equals returns.
func FuzzFilter(f *testing.F) {
	for _, seed := range []string{`userName eq "ann@acme.example"`, `emails[type eq "work" and not (value co "x")].value sw "a" or (active eq true)`, `meta.created gt "2026-01-01T00:00:00Z"`, `not(((title pr)))`, `a.b[c`} {
		f.Add(seed)
	}
	doc := object(f, ann)
	f.Fuzz(func(t *testing.T, text string) {
		parsed, err := ParseFilter(UserKind(), text)
		if err != nil {
			return
		}
		if want, ok := parsed.Equals("userName"); ok && parsed.Match(doc) && want != "ann@acme.example" {
			t.Errorf("%q matches, and Equals returns %q", text, want)
		}
		negated, err := ParseFilter(UserKind(), "not ("+text+")")
		if err == nil && negated.Match(doc) == parsed.Match(doc) {
			t.Errorf("%q and its negation both match, or neither does", text)
		}
	})
}

// FuzzPatch: a PATCH is refused, or its result is a document in the stored form, in which only
// attributes that clients may write have changed.
func FuzzPatch(f *testing.F) {
	for _, seed := range [][3]string{{"replace", `emails[type eq "work"].value`, `"x"`}, {"Add", "name", `{"givenName":"x"}`}, {"remove", "", "null"}, {"add", "", `{"name.givenName":"x","emails":{"value":"y"}}`}} {
		f.Add(seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, op, path, text string) {
		var v any
		if json.Unmarshal([]byte(text), &v) != nil {
			return
		}
		before := object(t, ann)
		after, err := Patch(UserKind(), before, map[string]any{"Operations": []any{map[string]any{"op": op, "path": path, "value": v}}})
		if !reflect.DeepEqual(before, object(t, ann)) {
			t.Fatalf("Patch changes its input to %v", before)
		}
		if err != nil {
			return
		}
		if after["id"] != "1" || !reflect.DeepEqual(after["meta"], before["meta"]) {
			t.Fatalf("Patch changes read-only members: %v", after)
		}
		normal, err := Normal(UserKind(), after)
		if err != nil {
			t.Fatalf("Normal(%v): %v", after, err)
		}
		delete(after, "id")
		delete(after, "meta")
		if !reflect.DeepEqual(normal, after) {
			t.Fatalf("Patch = %v, want the stored form %v", after, normal)
		}
	})
}
