package identity

import (
	"context"
	"net/http"
	"reflect"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// UserPath names a user: embed it in an input.
type UserPath struct {
	ID string `path:"user_id" maxLength:"128" pattern:"^[A-Za-z0-9._@:+-]+$" doc:"Id of the user"`
}

type userListIn struct {
	rest.Page
	Search string `query:"search" maxLength:"254" doc:"Only users whose name or e-mail address contains this text, ignoring case"`
}

// UserCreated is the answer to POST /users.
type UserCreated struct {
	ID        string    `json:"id" doc:"Id of the new user"`
	Email     string    `json:"email" doc:"E-mail address"`
	Username  string    `json:"username" doc:"User name"`
	Roles     []string  `json:"roles" nullable:"false" doc:"Roles, as stored"`
	CreatedAt time.Time `json:"created_at" doc:"When the user was created"`
	Message   string    `json:"message" doc:"What was done"`
}

type userUpdateIn struct {
	UserPath
	Body user.Change
}

type userRolesIn struct {
	UserPath
	Body user.RolesChange
}

// Revoked is the answer to deleting an object whose id is a text.
type Revoked struct {
	Message string `json:"message" doc:"What was done"`
	ID      string `json:"id" doc:"Id of the removed resource"`
}

// users registers the people of a tenant.
func (h *Handler) users(r *rest.Router) {
	tags, record := []string{"Users"}, reflect.TypeFor[user.User]()
	rest.Register(r, rest.Op{
		ID: "list-users", Method: http.MethodGet, Path: "/users", Permission: "users:read", Tags: tags,
		Summary: "List users", Description: "Oldest first.",
	}, func(ctx context.Context, sc scope.Scope, in *userListIn) (*rest.JSON[user.Page], error) {
		return rest.Answer(h.Users.List(ctx, sc, user.Filter{Skip: in.Skip, Limit: in.Limit, Search: in.Search}))
	})
	rest.Register(r, rest.Op{
		ID: "create-user", Method: http.MethodPost, Path: "/users", Permission: "users:write", Tags: tags, Status: http.StatusCreated, Creates: true, Record: record,
		Summary:     "Create a user",
		Description: "User names and e-mail addresses are unique, ignoring case, and so is an id that is sent (409); ids are compared as they are. The caller must hold what the roles allow (403). Over the tenant's max_users: 403 `limit_exceeded`.",
	}, func(ctx context.Context, sc scope.Scope, in *rest.JSON[user.Draft]) (*rest.JSON[UserCreated], error) {
		u, err := h.Users.Create(ctx, sc, in.Body)
		return rest.Answer(UserCreated{u.ID, u.Email, u.Username, u.Roles, u.CreatedAt, "User created successfully"}, err)
	})
	h.usersImport(r, tags)
	rest.Register(r, rest.Op{
		ID: "get-user", Method: http.MethodGet, Path: "/users/{user_id}", Permission: "users:read", Tags: tags,
		Summary: "Read a user",
	}, func(ctx context.Context, sc scope.Scope, in *UserPath) (*rest.JSON[user.User], error) {
		return rest.Answer(h.Users.Get(ctx, sc, in.ID))
	})
	rest.Register(r, rest.Op{
		ID: "update-user", Method: http.MethodPut, Path: "/users/{user_id}", Permission: "users:write", Tags: tags, Record: record,
		Errors:      []int{http.StatusConflict},
		Summary:     "Change a user",
		Description: "Members that are not sent keep their value. A new password, other roles or disabling ends the user's sessions at once. The caller must hold everything that the user may do, before and after (403). The last platform administrator keeps the role (409).",
	}, func(ctx context.Context, sc scope.Scope, in *userUpdateIn) (*rest.JSON[user.User], error) {
		return rest.Answer(h.Users.Update(ctx, sc, in.ID, in.Body))
	})
	rest.Register(r, rest.Op{
		ID: "set-user-roles", Method: http.MethodPut, Path: "/users/{user_id}/roles", Permission: "users:write", Tags: tags,
		Errors:      []int{http.StatusConflict},
		Summary:     "Set a user's roles",
		Description: "Ends the sessions of the old roles. The caller must hold what the old and the new roles allow (403).",
	}, func(ctx context.Context, sc scope.Scope, in *userRolesIn) (*rest.JSON[user.User], error) {
		return rest.Answer(h.Users.SetRoles(ctx, sc, in.ID, in.Body))
	})
	rest.Register(r, rest.Op{
		ID: "delete-user", Method: http.MethodDelete, Path: "/users/{user_id}", Permission: "users:write", Tags: tags,
		Errors:      []int{http.StatusConflict},
		Summary:     "Delete a user",
		Description: "The user's sessions and own API keys end at once. A generated id is never reused.",
	}, func(ctx context.Context, sc scope.Scope, in *UserPath) (*rest.JSON[Revoked], error) {
		u, err := h.Users.Delete(ctx, sc, in.ID)
		return rest.Answer(Revoked{"User deleted successfully", u.ID}, err)
	})
}
