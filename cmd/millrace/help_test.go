package main

import (
	"testing"

	"github.com/millrace-ml/millrace/cmd/internal/clitest"
)

func TestHelpIsShort(t *testing.T) { clitest.HelpIsShort(t, command()) }
