import { describe, expect, it } from "vitest";
import { fieldsOf, linesOf, moreOf, objectOf } from "./source";

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
