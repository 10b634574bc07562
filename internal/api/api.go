// Package api speaks HTTP. It holds one table of operations: every route is a
// Register or Raw call in the file of its first path segment, and all that is
// common to them happens here, in this order:
//
//	request id, security headers   exchange.go
//	aliases, 404, 405              alias.go, router.go
//	credential, tenant             credential.go
//	rate limit                     ratelimit.go
//	permission                     exchange.go
//	media type, size, body         body.go
//	parameters and body by schema  params.go, validate.go
//	idempotency                    idempotency.go
//	the handler
//	error bodies by area           errors.go
//
// The OpenAPI document that describes the operations is the one that requests
// are checked against (openapi.go).
package api
