package identity

import (
	"mime"
	"net/http"
	"reflect"

	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

type usersImportParams struct {
	DryRun bool `query:"dry_run" doc:"Check everything and store nothing"`
}

// usersImport registers the import of many users.
func (h *Handler) usersImport(r *rest.Router, tags []string) {
	rest.Raw(r, rest.Op{
		ID: "import-users", Method: http.MethodPost, Path: "/users/import", Permission: "users:write", Tags: tags,
		MaxBody: 10 << 20, Slow: true, Errors: []int{http.StatusConflict},
		Summary:     "Import users",
		Description: "Adds up to 5000 users from CSV or from JSON lines, all or none. CSV has a header: id, email, username, roles (separated by semicolons), department, attributes (a JSON object) and attributes.<name>. A JSON line has the members of POST /users. Passwords are not imported. If anything is wrong: 422 `import_failed`, with the line number of each offence.",
	}, rest.RawDocs{
		Params: reflect.TypeFor[usersImportParams](), Request: reflect.TypeFor[string](), RequestType: "text/csv, application/x-ndjson",
		Response: reflect.TypeFor[user.Imported](),
	}, func(w http.ResponseWriter, req *http.Request, sc scope.Scope) {
		body, err := rest.Body(w, req)
		if err != nil {
			rest.Fail(w, err)
			return
		}
		format := user.CSV
		if media, _, err := mime.ParseMediaType(req.Header.Get("Content-Type")); err == nil && media == "application/x-ndjson" {
			format = user.JSONLines
		}
		done, err := h.Users.Import(req.Context(), sc, format, body, req.URL.Query().Get("dry_run") == "true")
		if err != nil {
			rest.Fail(w, err)
			return
		}
		rest.WriteJSON(w, http.StatusOK, done)
	})
}
