// Package document has the SCIM form of people and groups: the schemas (RFC 7643), filters and
// paths on them, and changes by PATCH (RFC 7644). It is pure. A document is a JSON object whose
// members have the names of the schema.
package document

import (
	"slices"
	"strings"
)

// The types of attributes.
const (
	typeString  = "string"
	typeBoolean = "boolean"
	typeTime    = "dateTime"
	typeComplex = "complex"
	typeRef     = "reference"
)

// The mutabilities of attributes.
const (
	readWrite = "readWrite"
	readOnly  = "readOnly"
)

// The URIs of schemas.
const (
	UserURI       = "urn:ietf:params:scim:schemas:core:2.0:User"
	GroupURI      = "urn:ietf:params:scim:schemas:core:2.0:Group"
	EnterpriseURI = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User"
)

// Attribute is an attribute of a schema (RFC 7643 section 7).
type Attribute struct {
	Name           string      `json:"name"`
	Type           string      `json:"type"`
	MultiValued    bool        `json:"multiValued"`
	Description    string      `json:"description"`
	Required       bool        `json:"required"`
	CaseExact      bool        `json:"caseExact"`
	Mutability     string      `json:"mutability"`
	Returned       string      `json:"returned"`
	Uniqueness     string      `json:"uniqueness"`
	ReferenceTypes []string    `json:"referenceTypes,omitempty"`
	SubAttributes  []Attribute `json:"subAttributes,omitempty"`
}

// sub returns a sub-attribute by its name, ignoring case; nil: there is none.
func (a *Attribute) sub(name string) *Attribute { return attributeOf(a.SubAttributes, name) }

func attributeOf(list []Attribute, name string) *Attribute {
	i := slices.IndexFunc(list, func(a Attribute) bool { return strings.EqualFold(a.Name, name) })
	if i < 0 {
		return nil
	}
	return &list[i]
}

// Schema is a set of attributes.
type Schema struct {
	ID          string      `json:"id"`
	Name        string      `json:"name"`
	Description string      `json:"description"`
	Attributes  []Attribute `json:"attributes"`
}

// Kind is a type of resource.
type Kind struct {
	Name, Path string
	Core       Schema
	Extensions []Schema
	// common has the attributes of all resources, which schemas do not list (RFC 7643 section 3.1).
	common []Attribute
}

// find returns a top-level attribute of the core schema, or of the extension with a URI; nil: there
// is none.
func (k *Kind) find(uri, name string) (extension string, a *Attribute) {
	if uri == "" || strings.EqualFold(uri, k.Core.ID) {
		if a = attributeOf(k.Core.Attributes, name); a == nil {
			a = attributeOf(k.common, name)
		}
		return "", a
	}
	if e := k.extension(uri); e != nil {
		return e.ID, attributeOf(e.Attributes, name)
	}
	return "", nil
}

// extension returns an extension by its URI, ignoring case; nil: there is none.
func (k *Kind) extension(uri string) *Schema {
	for i := range k.Extensions {
		if strings.EqualFold(k.Extensions[i].ID, uri) {
			return &k.Extensions[i]
		}
	}
	return nil
}

// text returns a string attribute. notes change its defaults.
func text(name, description string, notes ...func(*Attribute)) Attribute {
	return of(name, typeString, description, notes...)
}

func of(name, kind, description string, notes ...func(*Attribute)) Attribute {
	a := Attribute{Name: name, Type: kind, Description: description, Mutability: readWrite, Returned: "default", Uniqueness: "none"}
	for _, note := range notes {
		note(&a)
	}
	return a
}

func required(a *Attribute) { a.Required = true }
func exact(a *Attribute)    { a.CaseExact = true }
func fixed(a *Attribute)    { a.Mutability = readOnly }
func unique(a *Attribute)   { a.Uniqueness = "server" }
func always(a *Attribute)   { a.Returned = "always" }
func multi(a *Attribute)    { a.MultiValued = true }

func subs(list ...Attribute) func(*Attribute) {
	return func(a *Attribute) { a.SubAttributes = list }
}

func refers(kinds ...string) func(*Attribute) {
	return func(a *Attribute) { a.ReferenceTypes, a.CaseExact = kinds, true }
}

// values returns a multi-valued attribute with the usual sub-attributes.
func values(name, description string) Attribute {
	return of(name, typeComplex, description, multi, subs(
		text("value", "The value."), text("display", "How to show the value."), text("type", "What the value is for, such as work or home."),
		of("primary", typeBoolean, "Whether this is the preferred value."),
	))
}

func commonAttributes() []Attribute {
	return []Attribute{
		text("id", "The id of the resource here.", exact, fixed, always, unique),
		text("externalId", "The id of the resource at the client.", exact),
		of("schemas", typeRef, "The schemas of the resource.", multi, exact, fixed, always),
		of("meta", typeComplex, "About the resource.", fixed, subs(
			text("resourceType", "The type of the resource.", exact, fixed), of("created", typeTime, "When it was added.", fixed),
			of("lastModified", typeTime, "When it last changed.", fixed), of("location", typeRef, "Where it is.", fixed, exact),
			text("version", "The entity tag of the resource.", exact, fixed),
		)),
	}
}

// UserKind returns the resource type of people.
func UserKind() *Kind {
	return &Kind{Name: "User", Path: "Users", common: commonAttributes(), Extensions: []Schema{enterprise()}, Core: Schema{
		ID: UserURI, Name: "User", Description: "A person.",
		Attributes: []Attribute{
			text("userName", "The name to sign in with; unique, ignoring case.", required, unique),
			of("name", typeComplex, "The parts of the person's name.", subs(
				text("formatted", "The full name."), text("familyName", "The family name."), text("givenName", "The given name."),
				text("middleName", "The middle names."), text("honorificPrefix", "The title before the name."), text("honorificSuffix", "What follows the name."),
			)),
			text("displayName", "How to show the person's name."),
			text("nickName", "The casual name."),
			of("profileUrl", typeRef, "The person's page.", refers("external")),
			text("title", "The job title."),
			text("userType", "How the person relates to the organisation."),
			text("preferredLanguage", "The preferred language."),
			text("locale", "The locale."),
			text("timezone", "The time zone."),
			of("active", typeBoolean, "Whether the person may use the service; false ends sessions and keys at once."),
			values("emails", "E-mail addresses. The primary one, else the one of type work, else the first is the person's address here; unique, ignoring case."),
			values("phoneNumbers", "Telephone numbers."),
			values("ims", "Addresses of instant messaging."),
			values("photos", "Pictures, by their URL."),
			of("addresses", typeComplex, "Postal addresses.", multi, subs(
				text("formatted", "The full address."), text("streetAddress", "Street and number."), text("locality", "The town."), text("region", "The region."),
				text("postalCode", "The postal code."), text("country", "The country."), text("type", "What the address is for."),
				of("primary", typeBoolean, "Whether this is the preferred address."),
			)),
			of("groups", typeComplex, "The groups of the person.", multi, fixed, subs(
				text("value", "The id of the group.", exact, fixed), of("$ref", typeRef, "Where the group is.", fixed, refers("Group")),
				text("display", "The name of the group.", fixed), text("type", "How the person is a member: direct.", fixed),
			)),
			values("entitlements", "What the person is entitled to."),
			values("roles", "Roles at the client; the tenant's role_map says which roles they are here."),
		},
	}}
}

func enterprise() Schema {
	return Schema{
		ID: EnterpriseURI, Name: "EnterpriseUser", Description: "A person in an organisation.",
		Attributes: []Attribute{
			text("employeeNumber", "The number of the employee."), text("costCenter", "The cost centre."), text("organization", "The organisation."),
			text("division", "The division."), text("department", "The department, which controls read as input.user.department."),
			of("manager", typeComplex, "The person's manager.", subs(
				text("value", "The id of the manager.", exact), of("$ref", typeRef, "Where the manager is.", refers("User")), text("displayName", "The manager's name.", fixed),
			)),
		},
	}
}

// GroupKind returns the resource type of groups.
func GroupKind() *Kind {
	return &Kind{Name: "Group", Path: "Groups", common: commonAttributes(), Core: Schema{
		ID: GroupURI, Name: "Group", Description: "A group of people.",
		Attributes: []Attribute{
			text("displayName", "The name of the group; unique, ignoring case. The tenant's role_map says what roles it gives.", required, unique),
			of("members", typeComplex, "The people in the group.", multi, subs(
				text("value", "The id of the person.", exact, required), of("$ref", typeRef, "Where the person is.", refers("User")),
				text("display", "The person's user name.", fixed), text("type", "The type of the member: User."),
			)),
		},
	}}
}
