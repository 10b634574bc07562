package identity

import (
	"context"
	"net/http"
	"reflect"
	"strconv"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/negotiate"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scim"
	"github.com/gatehouse-dev/gatehouse/internal/scim/document"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// scimMedia are the media types of SCIM; many clients send plain JSON.
const scimMedia = "application/scim+json, application/json"

// SCIMValue documents a value of a multi-valued attribute.
type SCIMValue struct {
	Value   string `json:"value,omitempty" doc:"The value"`
	Display string `json:"display,omitempty" doc:"How to show the value"`
	Type    string `json:"type,omitempty" doc:"What the value is for" example:"work"`
	Primary bool   `json:"primary,omitempty" doc:"Whether this is the preferred value"`
	Ref     string `json:"$ref,omitempty" doc:"Address of the resource that the value names"`
}

// SCIMMeta documents the metadata of a resource.
type SCIMMeta struct {
	ResourceType string `json:"resourceType,omitempty" doc:"Type of the resource" example:"User"`
	Created      string `json:"created,omitempty" doc:"When it was added"`
	LastModified string `json:"lastModified,omitempty" doc:"When it last changed"`
	Location     string `json:"location,omitempty" doc:"Its address"`
	Version      string `json:"version,omitempty" doc:"Its entity tag"`
}

// SCIMUser documents a person. The operation that lists schemas has all attributes.
type SCIMUser struct {
	Schemas     []string          `json:"schemas" nullable:"false" doc:"URIs of the schemas of the resource"`
	ID          string            `json:"id,omitempty" readOnly:"true" doc:"Id of the user in gatehouse"`
	ExternalID  string            `json:"externalId,omitempty" doc:"Id of the user at the client; unique in the tenant"`
	UserName    string            `json:"userName,omitempty" doc:"Name to sign in with; unique in the tenant, ignoring case"`
	Name        map[string]string `json:"name,omitempty" doc:"formatted, familyName, givenName, middleName, honorificPrefix and honorificSuffix"`
	DisplayName string            `json:"displayName,omitempty" doc:"How to show the name"`
	Active      bool              `json:"active,omitempty" doc:"false ends sessions and keys at once"`
	Emails      []SCIMValue       `json:"emails,omitempty" nullable:"false" doc:"E-mail addresses; the primary one is the user's address in gatehouse"`
	Roles       []SCIMValue       `json:"roles,omitempty" nullable:"false" doc:"Roles at the client, which the role_map translates"`
	Groups      []SCIMValue       `json:"groups,omitempty" nullable:"false" readOnly:"true" doc:"Groups of the user"`
	Meta        SCIMMeta          `json:"meta,omitzero" readOnly:"true" doc:"About the resource"`
	_           struct{}          `additionalProperties:"true"`
}

// SCIMGroup documents a group.
type SCIMGroup struct {
	Schemas     []string    `json:"schemas" nullable:"false" doc:"URIs of the schemas of the resource"`
	ID          string      `json:"id,omitempty" readOnly:"true" doc:"Id of the group"`
	ExternalID  string      `json:"externalId,omitempty" doc:"Id of the group at the client"`
	DisplayName string      `json:"displayName,omitempty" doc:"Name of the group; unique in the tenant, ignoring case"`
	Members     []SCIMValue `json:"members,omitempty" nullable:"false" maxItems:"10000" doc:"People in the group"`
	Meta        SCIMMeta    `json:"meta,omitzero" readOnly:"true" doc:"About the resource"`
	_           struct{}    `additionalProperties:"true"`
}

// SCIMOperation documents an operation of a PATCH.
type SCIMOperation struct {
	Op    string `json:"op" doc:"add, replace or remove, ignoring case" example:"replace"`
	Path  string `json:"path,omitempty" doc:"The attribute, such as name.givenName or emails[type eq \"work\"].value; absent: the value names attributes" example:"active"`
	Value any    `json:"value,omitempty" doc:"The new value"`
}

// SCIMPatch documents the body of a PATCH.
type SCIMPatch struct {
	Schemas    []string        `json:"schemas,omitempty" nullable:"false" doc:"The URI of SCIM's PATCH message"`
	Operations []SCIMOperation `json:"Operations" nullable:"false" minItems:"1" maxItems:"1000" doc:"The operations, all or none of which are applied"`
}

// SCIMList documents a list of resources.
type SCIMList struct {
	Schemas      []string         `json:"schemas" nullable:"false" doc:"The URI of SCIM's list message"`
	TotalResults int64            `json:"totalResults" doc:"Number of resources that match"`
	StartIndex   int              `json:"startIndex" doc:"Position of the first resource, from 1"`
	ItemsPerPage int              `json:"itemsPerPage" doc:"Number of resources in the answer"`
	Resources    []map[string]any `json:"Resources" nullable:"false" doc:"The resources, oldest first"`
}

type scimSelect struct {
	Attributes string `query:"attributes" maxLength:"4096" doc:"The attributes to return, separated by commas"`
	Excluded   string `query:"excludedAttributes" maxLength:"4096" doc:"The attributes to leave out, separated by commas"`
}

type scimList struct {
	scimSelect
	Filter string `query:"filter" maxLength:"4096" doc:"A filter, such as userName eq \"ann\"; at most 64 terms, nested at most 16 deep"`
	Start  int    `query:"startIndex" doc:"Position of the first result, from 1"`
	Count  int    `query:"count" doc:"Number of results, at most 200; 100 by default"`
}

type scimUserPath struct {
	ID string `path:"user_id" maxLength:"128" pattern:"^[A-Za-z0-9._@:+-]+$" doc:"Id of the user"`
}

type scimGroupPath struct {
	ID string `path:"group_id" maxLength:"128" pattern:"^[A-Za-z0-9._@:+-]+$" doc:"Id of the group"`
}

type scimMatch struct {
	IfMatch string `header:"If-Match" doc:"The current ETag of the resource, several separated by commas, or *. Any other value: 412"`
}

type scimUserGet struct {
	scimUserPath
	scimSelect
}

type scimUserChange struct {
	scimUserPath
	scimMatch
	scimSelect
}

type scimGroupGet struct {
	scimGroupPath
	scimSelect
}

type scimGroupChange struct {
	scimGroupPath
	scimMatch
	scimSelect
}

type scimNamePath struct {
	Name string `path:"name" maxLength:"128" doc:"Name of the type: User or Group"`
}

type scimURIPath struct {
	URI string `path:"uri" maxLength:"128" doc:"URI of the schema"`
}

// scimAnswer writes the answer of an operation, or returns its fault.
type scimAnswer func(w http.ResponseWriter, req *http.Request, sc scope.Scope) error

// scimOperation registers an operation of SCIM, for the tokens of directories.
func scimOperation(r *rest.Router, op rest.Op, docs rest.RawDocs, answer scimAnswer) {
	op.Root, op.Tags, op.Caller, op.MaxBody = true, []string{"SCIM"}, scope.Directory, scim.MaxBody
	if docs.Request != nil {
		docs.RequestType = scimMedia
	}
	if docs.Response != nil {
		docs.ResponseType = rest.SCIMMedia[0]
	}
	rest.Raw(r, op, docs, func(w http.ResponseWriter, req *http.Request, sc scope.Scope) {
		if err := answer(w, req, sc); err != nil {
			rest.Fail(w, err)
		}
	})
}

// scim registers the protocol by which directories provision people and groups.
func (h *Handler) scim(r *rest.Router) {
	h.scimDiscovery(r)
	h.scimUsers(r)
	h.scimGroups(r)
}

// scimDiscovery registers the documents that describe the server.
func (h *Handler) scimDiscovery(r *rest.Router) {
	object, list := reflect.TypeFor[map[string]any](), reflect.TypeFor[SCIMList]()
	scimOperation(r, rest.Op{
		ID: "scim-config", Method: http.MethodGet, Path: "/scim/v2/ServiceProviderConfig",
		Summary: "Read the SCIM features of the server", Description: "PATCH, filters and ETags are supported; bulk operations, sorting and passwords are not.",
	}, rest.RawDocs{Response: object}, func(w http.ResponseWriter, _ *http.Request, _ scope.Scope) error {
		return scimWrite(w, http.StatusOK, h.SCIM.ProviderConfig())
	})
	scimOperation(r, rest.Op{
		ID: "scim-resource-types", Method: http.MethodGet, Path: "/scim/v2/ResourceTypes",
		Summary: "List SCIM's types of resources",
	}, rest.RawDocs{Response: list}, func(w http.ResponseWriter, _ *http.Request, _ scope.Scope) error {
		return scimWriteAll(w, func() ([]map[string]any, error) { return h.SCIM.ResourceTypes("") })
	})
	scimOperation(r, rest.Op{
		ID: "scim-resource-type", Method: http.MethodGet, Path: "/scim/v2/ResourceTypes/{name}",
		Summary: "Read a type of resource of SCIM",
	}, rest.RawDocs{Params: reflect.TypeFor[scimNamePath](), Response: object}, func(w http.ResponseWriter, req *http.Request, _ scope.Scope) error {
		return scimWriteOne(w, func() ([]map[string]any, error) { return h.SCIM.ResourceTypes(req.PathValue("name")) })
	})
	scimOperation(r, rest.Op{
		ID: "scim-schemas", Method: http.MethodGet, Path: "/scim/v2/Schemas",
		Summary: "List SCIM's schemas", Description: "All attributes of users and groups, with the enterprise extension.",
	}, rest.RawDocs{Response: list}, func(w http.ResponseWriter, _ *http.Request, _ scope.Scope) error {
		return scimWriteAll(w, func() ([]map[string]any, error) { return h.SCIM.Schemas("") })
	})
	scimOperation(r, rest.Op{
		ID: "scim-schema", Method: http.MethodGet, Path: "/scim/v2/Schemas/{uri}",
		Summary: "Read a schema of SCIM",
	}, rest.RawDocs{Params: reflect.TypeFor[scimURIPath](), Response: object}, func(w http.ResponseWriter, req *http.Request, _ scope.Scope) error {
		return scimWriteOne(w, func() ([]map[string]any, error) { return h.SCIM.Schemas(req.PathValue("uri")) })
	})
}

// scimUsers registers the people of a directory.
func (h *Handler) scimUsers(r *rest.Router) {
	record := reflect.TypeFor[SCIMUser]()
	scimOperation(r, rest.Op{
		ID: "scim-list-users", Method: http.MethodGet, Path: "/scim/v2/Users",
		Summary: "List users by SCIM", Description: "All users of the tenant, oldest first. A filter that cannot be read, or names an unknown attribute: 400 invalidFilter.",
	}, rest.RawDocs{Params: reflect.TypeFor[scimList](), Response: reflect.TypeFor[SCIMList]()}, func(w http.ResponseWriter, req *http.Request, sc scope.Scope) error {
		return h.scimWritePage(w, req, sc, h.SCIM.ListUsers)
	})
	scimOperation(r, rest.Op{
		ID: "scim-create-user", Method: http.MethodPost, Path: "/scim/v2/Users", Status: http.StatusCreated, Creates: true,
		Summary:     "Add a user by SCIM",
		Description: "The user gets the roles that the tenant's role_map has for its roles, and the default roles. A user name, e-mail address or externalId that is in use: 409 uniqueness. Passwords are ignored.",
	}, rest.RawDocs{Params: reflect.TypeFor[scimSelect](), Request: record, Response: record}, func(w http.ResponseWriter, req *http.Request, sc scope.Scope) error {
		return h.scimCreate(w, req, sc, h.SCIM.CreateUser)
	})
	scimOperation(r, rest.Op{
		ID: "scim-get-user", Method: http.MethodGet, Path: "/scim/v2/Users/{user_id}", Summary: "Read a user by SCIM",
	}, rest.RawDocs{Params: reflect.TypeFor[scimUserGet](), Response: record}, func(w http.ResponseWriter, req *http.Request, sc scope.Scope) error {
		res, err := h.SCIM.User(req.Context(), sc, req.PathValue("user_id"))
		return h.scimWriteResource(w, req, http.StatusOK, res, err)
	})
	change := []int{http.StatusConflict, http.StatusPreconditionFailed}
	scimOperation(r, rest.Op{
		ID: "scim-replace-user", Method: http.MethodPut, Path: "/scim/v2/Users/{user_id}", Errors: change,
		Summary:     "Replace a user by SCIM",
		Description: "Members that the body leaves out are removed, except active. Users who may do more than the role_map allows are changed only if the directory added them, and get no further rights (403). The last administrator keeps the role (409).",
	}, rest.RawDocs{Params: reflect.TypeFor[scimUserChange](), Request: record, Response: record}, func(w http.ResponseWriter, req *http.Request, sc scope.Scope) error {
		return h.scimChange(w, req, sc, "user_id", h.SCIM.ReplaceUser)
	})
	scimOperation(r, rest.Op{
		ID: "scim-patch-user", Method: http.MethodPatch, Path: "/scim/v2/Users/{user_id}", Errors: change,
		Summary:     "Change a user by SCIM",
		Description: "Applies all operations or none. active false ends the user's sessions and keys at once. The rules of replacing a user apply.",
	}, rest.RawDocs{Params: reflect.TypeFor[scimUserChange](), Request: reflect.TypeFor[SCIMPatch](), Response: record}, func(w http.ResponseWriter, req *http.Request, sc scope.Scope) error {
		return h.scimChange(w, req, sc, "user_id", h.SCIM.PatchUser)
	})
	scimOperation(r, rest.Op{
		ID: "scim-delete-user", Method: http.MethodDelete, Path: "/scim/v2/Users/{user_id}", Status: http.StatusNoContent, Errors: change,
		Summary: "Remove a user by SCIM", Description: "The user's sessions and own API keys end at once. The last administrator cannot be removed (409).",
	}, rest.RawDocs{Params: reflect.TypeFor[struct {
		scimUserPath
		scimMatch
	}]()}, func(w http.ResponseWriter, req *http.Request, sc scope.Scope) error {
		return scimDelete(w, req, sc, "user_id", h.SCIM.DeleteUser)
	})
}

// scimGroups registers the groups of a directory.
func (h *Handler) scimGroups(r *rest.Router) {
	record := reflect.TypeFor[SCIMGroup]()
	scimOperation(r, rest.Op{
		ID: "scim-list-groups", Method: http.MethodGet, Path: "/scim/v2/Groups",
		Summary: "List groups by SCIM", Description: "Oldest first. excludedAttributes=members leaves the members out.",
	}, rest.RawDocs{Params: reflect.TypeFor[scimList](), Response: reflect.TypeFor[SCIMList]()}, func(w http.ResponseWriter, req *http.Request, sc scope.Scope) error {
		return h.scimWritePage(w, req, sc, h.SCIM.ListGroups)
	})
	scimOperation(r, rest.Op{
		ID: "scim-create-group", Method: http.MethodPost, Path: "/scim/v2/Groups", Status: http.StatusCreated, Creates: true,
		Summary:     "Add a group by SCIM",
		Description: "Its members get the roles that the tenant's role_map has for its name. A name that another group has: 409 uniqueness. At most 2000 groups, with at most 10,000 members each.",
	}, rest.RawDocs{Params: reflect.TypeFor[scimSelect](), Request: record, Response: record}, func(w http.ResponseWriter, req *http.Request, sc scope.Scope) error {
		return h.scimCreate(w, req, sc, h.SCIM.CreateGroup)
	})
	scimOperation(r, rest.Op{
		ID: "scim-get-group", Method: http.MethodGet, Path: "/scim/v2/Groups/{group_id}", Summary: "Read a group by SCIM",
	}, rest.RawDocs{Params: reflect.TypeFor[scimGroupGet](), Response: record}, func(w http.ResponseWriter, req *http.Request, sc scope.Scope) error {
		res, err := h.SCIM.Group(req.Context(), sc, req.PathValue("group_id"), selection(req))
		return h.scimWriteResource(w, req, http.StatusOK, res, err)
	})
	change := []int{http.StatusConflict, http.StatusPreconditionFailed}
	scimOperation(r, rest.Op{
		ID: "scim-replace-group", Method: http.MethodPut, Path: "/scim/v2/Groups/{group_id}", Errors: change,
		Summary: "Replace a group by SCIM", Description: "People who join or leave the group get other roles at once, which ends their sessions.",
	}, rest.RawDocs{Params: reflect.TypeFor[scimGroupChange](), Request: record, Response: record}, func(w http.ResponseWriter, req *http.Request, sc scope.Scope) error {
		return h.scimChange(w, req, sc, "group_id", h.SCIM.ReplaceGroup)
	})
	scimOperation(r, rest.Op{
		ID: "scim-patch-group", Method: http.MethodPatch, Path: "/scim/v2/Groups/{group_id}", Errors: change,
		Summary: "Change a group by SCIM", Description: "Applies all operations or none. People who join or leave the group get other roles at once, which ends their sessions.",
	}, rest.RawDocs{Params: reflect.TypeFor[scimGroupChange](), Request: reflect.TypeFor[SCIMPatch](), Response: record}, func(w http.ResponseWriter, req *http.Request, sc scope.Scope) error {
		return h.scimChange(w, req, sc, "group_id", h.SCIM.PatchGroup)
	})
	scimOperation(r, rest.Op{
		ID: "scim-delete-group", Method: http.MethodDelete, Path: "/scim/v2/Groups/{group_id}", Status: http.StatusNoContent, Errors: change,
		Summary: "Remove a group by SCIM", Description: "Its members stay, and lose the roles that the group gave them.",
	}, rest.RawDocs{Params: reflect.TypeFor[struct {
		scimGroupPath
		scimMatch
	}]()}, func(w http.ResponseWriter, req *http.Request, sc scope.Scope) error {
		return scimDelete(w, req, sc, "group_id", h.SCIM.DeleteGroup)
	})
}

// selection returns the attributes that a request wants.
func selection(req *http.Request) document.Selection {
	q := req.URL.Query()
	return document.ParseSelection(q.Get("attributes"), q.Get("excludedAttributes"))
}

// scimBody reads a body as an object.
func scimBody(w http.ResponseWriter, req *http.Request) (map[string]any, error) {
	data, err := rest.Body(w, req)
	if err != nil {
		return nil, err
	}
	doc, err := rest.Parse(data)
	if err != nil {
		return nil, err
	}
	body, ok := doc.Any().(map[string]any)
	if !ok {
		return nil, fault.New(fault.BadRequest, "invalid_syntax", "the body must be an object")
	}
	return body, nil
}

func scimWrite(w http.ResponseWriter, status int, v any) error {
	body, err := rest.Encode(v)
	if err == nil {
		rest.WriteBytes(w, status, rest.SCIMMedia, body)
	}
	return err
}

// scimWriteAll answers with a whole list.
func scimWriteAll(w http.ResponseWriter, list func() ([]map[string]any, error)) error {
	all, err := list()
	if err != nil {
		return err
	}
	return scimWrite(w, http.StatusOK, SCIMList{[]string{scim.ListURI}, int64(len(all)), 1, len(all), all})
}

// scimWriteOne answers with the one entry of a list.
func scimWriteOne(w http.ResponseWriter, list func() ([]map[string]any, error)) error {
	all, err := list()
	if err != nil {
		return err
	}
	return scimWrite(w, http.StatusOK, all[0])
}

// scimRender returns the part of a resource that the request wants, with its entity tag.
func (h *Handler) scimRender(res scim.Resource, sel document.Selection) map[string]any {
	if meta, ok := res.Document["meta"].(map[string]any); ok {
		meta["version"] = rest.ETag(res.Version)
	}
	return h.SCIM.Select(res, sel)
}

// scimWriteResource answers with a resource, or with 304 if the client has it.
func (h *Handler) scimWriteResource(w http.ResponseWriter, req *http.Request, status int, res scim.Resource, err error) error {
	if err != nil {
		return err
	}
	tag := rest.ETag(res.Version)
	w.Header().Set("ETag", tag)
	if status == http.StatusCreated {
		if meta, ok := res.Document["meta"].(map[string]any); ok {
			location, _ := meta["location"].(string)
			w.Header().Set("Location", location)
		}
	}
	if req.Method == http.MethodGet && negotiate.Matches(req.Header.Values("If-None-Match"), tag) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	return scimWrite(w, status, h.scimRender(res, selection(req)))
}

// scimWritePage answers with a page of a list.
func (h *Handler) scimWritePage(w http.ResponseWriter, req *http.Request, sc scope.Scope, list func(context.Context, scope.Scope, scim.Query) (scim.Page, error)) error {
	values := req.URL.Query()
	q := scim.Query{Filter: values.Get("filter"), Select: selection(req)}
	q.Start, _ = strconv.Atoi(values.Get("startIndex")) // already checked against the document
	if values.Has("count") {
		n, _ := strconv.Atoi(values.Get("count"))
		q.Count = &n
	}
	page, err := list(req.Context(), sc, q)
	if err != nil {
		return err
	}
	out := SCIMList{[]string{scim.ListURI}, page.Total, page.Start, len(page.Resources), make([]map[string]any, len(page.Resources))}
	for i, res := range page.Resources {
		out.Resources[i] = h.scimRender(res, q.Select)
	}
	return scimWrite(w, http.StatusOK, out)
}

func (h *Handler) scimCreate(w http.ResponseWriter, req *http.Request, sc scope.Scope, create func(context.Context, scope.Scope, map[string]any) (scim.Resource, error)) error {
	body, err := scimBody(w, req)
	if err != nil {
		return err
	}
	res, err := create(req.Context(), sc, body)
	return h.scimWriteResource(w, req, http.StatusCreated, res, err)
}

func (h *Handler) scimChange(w http.ResponseWriter, req *http.Request, sc scope.Scope, id string, change func(ctx context.Context, sc scope.Scope, id string, version int64, body map[string]any) (scim.Resource, error)) error {
	body, err := scimBody(w, req)
	if err != nil {
		return err
	}
	res, err := rest.Matching(req.Header.Get("If-Match"), func(version int64) (scim.Resource, error) {
		return change(req.Context(), sc, req.PathValue(id), version, body)
	})
	return h.scimWriteResource(w, req, http.StatusOK, res, err)
}

func scimDelete(w http.ResponseWriter, req *http.Request, sc scope.Scope, id string, remove func(ctx context.Context, sc scope.Scope, id string, version int64) error) error {
	_, err := rest.Matching(req.Header.Get("If-Match"), func(version int64) (struct{}, error) {
		return struct{}{}, remove(req.Context(), sc, req.PathValue(id), version)
	})
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}
