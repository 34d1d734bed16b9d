"""A network with every dropout of PyTorch, on tensors whose rows are in various dimensions, and recurrent networks."""
import torch
from torch import nn
from torch.nn import functional as F


class Dropouts(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(5, 8)
        self.attention = nn.MultiheadAttention(8, 2, dropout=0.1)
        self.lstm = nn.LSTM(8, 8, 2, dropout=0.3, batch_first=True)
        self.positions = nn.Parameter(torch.randn(6, 8) * 0.1)
        self.head = nn.Linear(8, 3)

    def forward(self, x, target):
        rows = x.size(0)
        x = F.dropout(self.first(x), 0.3)
        x = F.dropout(x.transpose(0, 1), 0.2)  # the first dimension is the positions
        x = x + self.attention(x, x, x)[0]
        x = F.dropout(x.reshape(6 * rows, 8), 0.2).view(6, rows, 8).transpose(0, 1)
        x = F.dropout2d(x.transpose(1, 2).unsqueeze(3), 0.2).squeeze(3)  # drops whole channels
        x = F.alpha_dropout(x.transpose(1, 2), 0.1)
        x = self.lstm(x)[0] + F.dropout(self.positions, 0.2)
        return F.mse_loss(self.head(F.feature_alpha_dropout(x, 0.2)), target)


class Between(nn.Module):
    """Recurrent layers, some with two directions; the dropout between them has a rate so small that it drops nothing"""
    def __init__(self):
        super().__init__()
        rate = 1e-30
        self.gru = nn.GRU(5, 3, 3, dropout=rate, bidirectional=True)
        self.lstm = nn.LSTM(6, 4, 2, dropout=rate, bidirectional=True, batch_first=True, proj_size=2)
        self.rnn = nn.RNN(4, 3, 2, dropout=rate, bias=False)
        self.begin = nn.Parameter(torch.randn(4, 1, 4) * 0.1)

    def forward(self, x, target):
        x, last = self.gru(x.transpose(0, 1))
        states = self.begin.expand(-1, target.size(0), -1)
        x, (hidden, cell) = self.lstm(x.transpose(0, 1), (states[:, :, :2].contiguous(), states.contiguous()))
        x = self.rnn(x.transpose(0, 1))[0].transpose(0, 1)
        return F.mse_loss(x, target) + last.square().mean() + hidden.mean() + cell.square().mean()


def between(rows=4):
    return Between(), (torch.randn(rows, 6, 5), torch.randn(rows, 6, 3))


def dropouts(rows=4):
    return Dropouts(), (torch.randn(rows, 6, 5), torch.randn(rows, 6, 3))
