const libraries = {
  about: "Modules that controls import, so that shared rules are written once.",
  activateAbout: "Controls of this environment can import it from now on.",
  create: "Create and write it",
  deactivateAbout: "Controls can no longer import it. The change is refused while an active control does.",
  delete: "Delete the library",
  deleteAbout: "Controls can no longer import it. It can be restored by its id.",
  description: "Description",
  empty: "No libraries yet",
  emptyAbout: "A library holds functions and lists that several controls import. A change reaches all of them at once.",
  new: "New library",
  noUsers: "No policy uses this library.",
  package: "Package",
  packageAbout: "Controls import it by this name. It is below lib.",
  users: "Used by",
  usersAbout: {
    one: "{count} policy uses it. A change reaches it at once.",
    other: "{count} policies use it. A change reaches all of them at once.",
  },
};
export default libraries;
