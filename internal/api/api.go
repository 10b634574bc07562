// Package api assembles the HTTP API from its rooms, the packages below it. Each
// room serves one area: a Handler with its own dependencies registers operations
// with the kit, package rest. In a room, a file is named after the first path
// segment that it serves.
//
// This package itself contains what concerns the whole API: aliases of paths, the
// rules of path prefixes, the description of the document and its translations.
package api
