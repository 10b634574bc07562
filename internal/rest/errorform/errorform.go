// Package errorform defines error bodies of other protocols: SCIM (RFC 7644 section 3.12) and OPA.
package errorform

import (
	"strconv"
)

// SCIMError is the body of errors of the SCIM operations.
type SCIMError struct {
	Schemas []string `json:"schemas" nullable:"false" doc:"Always the URI of SCIM's error message"`
	Status  string   `json:"status" doc:"The HTTP status, as text" example:"400"`
	Type    string   `json:"scimType,omitempty" doc:"What kind of error it is, where SCIM has a name for it" example:"invalidFilter"`
	Detail  string   `json:"detail" doc:"What went wrong, in words"`
}

// SCIM returns the body for an HTTP status, one of our codes, and a description.
func SCIM(status int, code, detail string) SCIMError {
	return SCIMError{[]string{"urn:ietf:params:scim:api:messages:2.0:Error"}, strconv.Itoa(status), kind(code), detail}
}

// kind returns SCIM's name for a code; empty for none.
func kind(code string) string {
	switch code {
	case "invalid_filter":
		return "invalidFilter"
	case "too_many":
		return "tooMany"
	case "invalid_path":
		return "invalidPath"
	case "invalid_value", "validation_failed":
		return "invalidValue"
	case "invalid_syntax", "invalid_json":
		return "invalidSyntax"
	case "no_target":
		return "noTarget"
	case "mutability":
		return "mutability"
	case "already_exists":
		return "uniqueness"
	}
	return ""
}

// OPACode returns OPA's code for a status.
func OPACode(status int) string {
	switch status {
	case 401, 403:
		return "unauthorized"
	case 404:
		return "resource_not_found"
	case 500, 503:
		return "internal_error"
	default:
		return "invalid_parameter"
	}
}
