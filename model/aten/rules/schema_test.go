package rules

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/model/aten"
)

// TestSchemasAreThoseOfPyTorch compares the schemas with those of the installed PyTorch, if it has the same version.
func TestSchemasAreThoseOfPyTorch(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "/usr/bin/python3", "-B", "testdata/schemas.py").Output()
	if err != nil {
		t.Fatalf("/usr/bin/python3 with torch, which make setup-pytorch installs: %v", err)
	}
	version, text, _ := strings.Cut(string(out), "\n")
	if strings.HasPrefix(version, "1.13") && text != schemaText {
		t.Error("schemas.txt is another; write it again: /usr/bin/python3 testdata/schemas.py | tail -n +2 >schemas.txt")
	}
}

func TestArgumentsByNameTakeTheirPlaces(t *testing.T) {
	named := func(name string, a aten.Arg) aten.Arg {
		a.Name = name
		return a
	}
	one, flag := aten.Arg{Kind: aten.Int, Int: 1}, aten.Arg{Kind: aten.Bool, Bool: true}
	n, err := positional(&aten.Node{Op: "aten::max_pool2d", In: []aten.Arg{value(0), named("ceil_mode", flag),
		named("kernel_size", aten.Arg{Kind: aten.List, List: []aten.Arg{one, one}})}})
	must(t, err)
	if len(n.In) != 6 || n.In[1].List[1].Int != 1 || len(n.In[2].List) != 0 || n.In[4].List[0].Int != 1 || !n.In[5].Bool {
		t.Errorf("max_pool2d of %+v", n.In)
	}
	for _, c := range []struct {
		node aten.Node
		want string
	}{
		{aten.Node{Op: "aten::nobody", In: []aten.Arg{named("x", one)}}, "it is given x by name, and is none of"},
		{aten.Node{Op: "aten::relu", In: []aten.Arg{named("x", one)}}, "it has no argument x in PyTorch 1.13"},
		{aten.Node{Op: "aten::relu", In: []aten.Arg{one, named("self", one)}}, "it has no argument self in PyTorch 1.13"},
		{aten.Node{Op: "aten::relu", In: []aten.Arg{one, one, named("x", one)}}, "it is given 2 arguments by position, and"},
		{aten.Node{Op: "aten::add.Tensor", In: []aten.Arg{value(0), named("alpha", one)}}, "its argument other is missing"},
	} {
		if _, err := positional(&c.node); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v instead of %q", err, c.want)
		}
	}
}
