package rest

import (
	"net/http"
	"reflect"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rest/errorform"
)

// The types of error bodies, for the document. answer.MarshalJSON writes them.
type (
	// Error is the body of errors outside the areas below.
	Error struct {
		Error     string         `json:"error" doc:"A stable code in snake_case" example:"not_found"`
		Message   string         `json:"message" doc:"What went wrong, in words"`
		RequestID string         `json:"request_id" doc:"Identifies this answer in the server's logs"`
		Details   []fault.Detail `json:"details,omitempty" doc:"Every error, with a JSON pointer into the body or the name of the parameter"`
		_         struct{}       `additionalProperties:"true"`
	}
	// TenantError is the body of errors of the tenant operations.
	TenantError struct {
		Error    string         `json:"error" doc:"A stable code in snake_case" example:"tenant_not_found"`
		Message  string         `json:"message" doc:"What went wrong, in words"`
		TenantID string         `json:"tenant_id,omitempty" doc:"The tenant that was asked for"`
		Details  []fault.Detail `json:"details,omitempty" doc:"Every error, with a JSON pointer into the body or the name of the parameter"`
		_        struct{}       `additionalProperties:"true"`
	}
	// RateLimitError is the body of a 429.
	RateLimitError struct {
		Error      string   `json:"error" doc:"A stable code in snake_case" example:"rate_limit_exceeded"`
		Message    string   `json:"message" doc:"What went wrong, in words"`
		RetryAfter int64    `json:"retry_after,omitempty" doc:"Seconds to wait before trying again"`
		Limit      int64    `json:"limit,omitempty" doc:"Requests allowed in the window"`
		Remaining  int64    `json:"remaining,omitempty" doc:"Requests left in the window"`
		_          struct{} `additionalProperties:"true"`
	}
	// DetailError is the body of errors of telemetry and the simulator.
	DetailError struct {
		Detail string   `json:"detail" doc:"What went wrong, in words"`
		_      struct{} `additionalProperties:"true"`
	}
	// EditorError is the body of errors of the editor integration.
	EditorError struct {
		Success bool           `json:"success" doc:"Always false"`
		Message string         `json:"message" doc:"What went wrong, in words"`
		Errors  []fault.Detail `json:"errors" doc:"Every error"`
		_       struct{}       `additionalProperties:"true"`
	}
	// OPAError is the body of errors for clients of OPA.
	OPAError struct {
		Code    string `json:"code" doc:"The code that OPA would return" example:"invalid_parameter"`
		Message string `json:"message" doc:"What went wrong, in words"`
	}
	// OAuthError is the body of errors of the token endpoint (RFC 6749 section 5.2).
	OAuthError struct {
		Error       string   `json:"error" doc:"A stable code in snake_case" example:"invalid_grant"`
		Description string   `json:"error_description" doc:"What went wrong, in words"`
		Message     string   `json:"message" doc:"What went wrong, in words"`
		_           struct{} `additionalProperties:"true"`
	}
)

// errorType returns the Go type of the error body that a shape has for a status.
func errorType(a Shape, status int) reflect.Type {
	if status == http.StatusTooManyRequests && a != ShapeOPA && a != ShapeAuthZEN && a != ShapeSCIM {
		return reflect.TypeFor[RateLimitError]()
	}
	switch a {
	case ShapeTenant:
		return reflect.TypeFor[TenantError]()
	case ShapeDetail:
		return reflect.TypeFor[DetailError]()
	case ShapeEditor:
		return reflect.TypeFor[EditorError]()
	case ShapeOPA:
		return reflect.TypeFor[OPAError]()
	case ShapeAuthZEN:
		return reflect.TypeFor[string]()
	case ShapeOAuth:
		return reflect.TypeFor[OAuthError]()
	case ShapeSCIM:
		return reflect.TypeFor[errorform.SCIMError]()
	default:
		return reflect.TypeFor[Error]()
	}
}
