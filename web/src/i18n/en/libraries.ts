const libraries = {
  about: "Modules that controls import: what several controls need is written once.",
  activateAbout: "Controls of this environment can import it from then on.",
  create: "Create and write it",
  deactivateAbout: "Controls can no longer import it. While one that is active does, the change is refused.",
  delete: "Delete the library",
  deleteAbout: "Controls can no longer import it. It can be restored by its id.",
  description: "Description",
  empty: "No libraries yet",
  emptyAbout: "A library holds functions and lists that several controls import. A change reaches all of them at once.",
  new: "New library",
  noUsers: "No policy uses this library.",
  package: "Package",
  packageAbout: "Controls import it by this name. It is below lib.",
  title: "Libraries",
  users: "Used by",
  usersAbout: {
    one: "{count} policy uses it. A change reaches it at once.",
    other: "{count} policies use it. A change reaches all of them at once.",
  },
};
export default libraries;
