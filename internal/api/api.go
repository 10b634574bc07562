// Package api assembles the HTTP API from its rooms, the packages below it. Each
// room serves one area: a Handler with its own dependencies registers operations
// with the kit, package rest. In a room, a file is named for the first path segment
// that it serves.
//
// Here is what concerns the API as a whole: aliases of paths, the rules of path
// prefixes, the description of the document and its translations.
package api
