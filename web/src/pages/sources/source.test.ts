import { describe, expect, it } from "vitest";
import { credentialsOf, fieldsOf, linesOf, moreOf, objectOf } from "./source";

describe("the members of a record", () => {
  it("are lines of name and path, and lines are members again", () => {
    const fields = { grade: "$.job.grade", odd: "$['a=b']" };
    expect(linesOf(fields)).toBe("grade = $.job.grade\nodd = $['a=b']");
    expect(fieldsOf(linesOf(fields))).toEqual(fields);
  });
  it("may be a name alone", () => expect(fieldsOf(" grade \n\n")).toEqual({ grade: "grade" }));
  it("need a name and a path", () => {
    expect(fieldsOf("= $.x")).toBeNull();
    expect(fieldsOf("x =")).toBeNull();
  });
});

describe("the credentials", () => {
  const keys = { username: "AKIA", password: "secret", session_token: "temporary" };
  it("of a bucket may have a session token", () => {
    expect(credentialsOf("password", keys, "s3")).toEqual(keys);
    expect(credentialsOf("password", { ...keys, session_token: "" }, "s3")).not.toHaveProperty("session_token");
  });
  it("of others have none", () => {
    expect(credentialsOf("password", keys, "sql")).toEqual({ username: "AKIA", password: "secret" });
    expect(credentialsOf("none", keys, "s3")).toBeUndefined();
  });
});

describe("the rest of a configuration", () => {
  it("is what no field shows", () => {
    expect(moreOf({ url: "https://a.example", key: "id" })).toBe("");
    expect(JSON.parse(moreOf({ url: "https://a.example", method: "POST" }))).toEqual({ method: "POST" });
  });
  it("is an object or nothing", () => {
    expect(objectOf(" ")).toEqual({});
    expect(objectOf('{"method": "POST"}')).toEqual({ method: "POST" });
    expect(objectOf("[1]")).toBeNull();
    expect(objectOf("{")).toBeNull();
  });
});
