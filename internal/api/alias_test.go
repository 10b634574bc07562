package api

import "testing"

// TestCanonical: each alias leads to the path of its operation, and nothing else does.
func TestCanonical(t *testing.T) {
	for path, want := range map[string]string{
		"/api/v1/users":                       "/api/v1/users",
		"/api/users":                          "/api/v1/users",
		"/v1/users":                           "/api/v1/users",
		"/api/v1/v1/users":                    "/api/v1/users",
		"/health/live":                        "/api/v1/health/live",
		"/healthy":                            "/healthy",
		"/v1/data/gatehouse/decision":         "/v1/data/gatehouse/decision",
		"/api/v2/users":                       "/api/v2/users",
		"/api/v1/policies/7/users":            "/api/v1/policies/7/dependents",
		"/v1/policies/7/users":                "/api/v1/policies/7/dependents",
		"/api/v1/policies/7/dependents":       "/api/v1/policies/7/dependents",
		"/api/v1/policies//users":             "/api/v1/policies//users",
		"/api/v1/policies/users":              "/api/v1/policies/users",
		"/api/v1/policies/7/versions/1/users": "/api/v1/policies/7/versions/1/users",
		"/policies/7/users":                   "/policies/7/users",
		"/api/v1/tenants/policies/7/users":    "/api/v1/tenants/policies/7/users",
	} {
		if got := canonical(path); got != want {
			t.Errorf("canonical(%s) = %s, want %s", path, got, want)
		}
	}
}
